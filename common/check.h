#pragma once

// CHECK for broken invariants: on in release builds, prints the values, ends the
// process. Bad bytes from outside are a Status, never a CHECK.

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

namespace muster {

[[noreturn]] inline void CheckFailed(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "muster: internal error at %s:%d: %s\n", file, line, what.c_str());
  std::abort();
}

template <class A, class B>
std::string CheckValues(const char* text, const A& a, const B& b) {
  std::ostringstream out;
  out << text << " (" << a << " vs " << b << ")";
  return out.str();
}

}  // namespace muster

#define MUSTER_CHECK(condition, message)                                                   \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      ::muster::CheckFailed(__FILE__, __LINE__, std::string(#condition ": ") + (message)); \
    }                                                                                      \
  } while (false)

#define MUSTER_CHECK_EQ(a, b)                                                         \
  do {                                                                                \
    const auto& check_a = (a);                                                        \
    const auto& check_b = (b);                                                        \
    if (!(check_a == check_b)) {                                                      \
      ::muster::CheckFailed(                                                          \
          __FILE__, __LINE__, ::muster::CheckValues(#a " == " #b, check_a, check_b)); \
    }                                                                                 \
  } while (false)
