#pragma once

// TraceTail: the events of a trace that grows, each once. What has been read gives its disk space
// back, as a job without pauses writes a megabyte a second.
//
// One thread.

#include <string>
#include <vector>

#include "bench/trace_event.h"
#include "common/unique_fd.h"

namespace muster::bench {

class TraceTail {
 public:
  /// Makes the file, so that it is there before the job.
  static Result<TraceTail> Make(const std::string& path);

  /// What has been appended since, without `commit` lines. Never waits.
  Result<std::vector<TraceEvent>> Read();

 private:
  TraceTail(std::string path, UniqueFd file) : path_(std::move(path)), file_(std::move(file)) {}
  Status Parse(std::vector<TraceEvent>& events);

  std::string path_;
  UniqueFd file_;
  int64_t offset_ = 0;
  std::string unread_;  // Of `offset_` and before: the start of a line.
};

}  // namespace muster::bench
