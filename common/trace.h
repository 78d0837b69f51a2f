#pragma once

// Trace: with MUSTER_TRACE=FILE every process of a job appends one JSON line per event, each
// in one write() to a file opened with O_APPEND, so that lines of several processes never mix.
// The fields stand in docs/trace.md. Thread-safe.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "common/unique_fd.h"

namespace muster {

class Trace {
 public:
  /// An empty path gives a trace that writes nothing.
  explicit Trace(const std::string& path);

  bool enabled() const { return fd_.valid(); }

  /// Adds t_ns (CLOCK_MONOTONIC), event and pid to the fields and appends the line.
  void Write(const char* event, nlohmann::json fields) const;

 private:
  UniqueFd fd_;
};

}  // namespace muster
