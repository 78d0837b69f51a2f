#pragma once

// What the programs of the integration tests share: options from argv, and the log of what they
// live through ($TEST_LOG, one JSON line per event). No tests, no collectives. EventLog is
// thread-safe but for Write, which names the place and belongs to the thread in elastic::run.

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "common/trace.h"

namespace muster::test {

/// Pairs of option and value; anything else prints the usage and exits with 2.
class Arguments {
 public:
  Arguments(int argc, char** argv, const char* usage);

  std::string Text(const std::string& name) const;
  int64_t Number(const std::string& name, int64_t otherwise) const;
  bool Has(const std::string& name) const { return Number(name, 0) != 0; }

 private:
  std::map<std::string, std::string> values_;
};

/// Empty if it is not set.
std::string Environment(const char* name);

class EventLog {
 public:
  EventLog();

  void Write(const char* event, nlohmann::json fields = nlohmann::json::object()) const;
  // From threads other than the one in elastic::run, where the place may change meanwhile.
  void WriteWithoutPlace(const char* event) const;

 private:
  muster::Trace trace_;
};

}  // namespace muster::test
