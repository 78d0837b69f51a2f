#pragma once

// Fiber: a thread of a simulated program, on a stack of its own, that runs only while somebody
// resumes it. Exceptions may be thrown and caught in it, also across Yield.
//
// One OS thread.

#include <ucontext.h>

#include <cstddef>
#include <functional>
#include <memory>

namespace muster::sim {

class Fiber {
 public:
  /// The body must not let an exception out.
  explicit Fiber(std::function<void()> body);
  /// Only of one that has not begun, or is done.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Runs the body until its next Yield or its end.
  void Resume();
  /// Back to whoever has resumed this fiber. Called in it.
  void Yield();
  bool started() const { return started_; }
  bool done() const { return done_; }

 private:
  static void Enter(unsigned high, unsigned low);
  void Switch(ucontext_t& from, const ucontext_t& to, bool into_fiber, bool last);

  std::function<void()> body_;
  std::unique_ptr<std::byte[]> stack_;
  ucontext_t own_{};
  ucontext_t resumer_{};
  bool started_ = false;
  bool done_ = false;
  // The exceptions being handled by the side that does not run; see Switch.
  void* caught_ = nullptr;
  unsigned uncaught_ = 0;
  void* sanitizer_own_ = nullptr;
  const void* resumer_stack_ = nullptr;
  size_t resumer_stack_bytes_ = 0;
};

}  // namespace muster::sim
