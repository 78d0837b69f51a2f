#pragma once

// Where log lines go: a descriptor, but never at the price of waiting for it. Loop threads log, and
// a terminal that is stopped, or a pipe that nobody reads, must not stop them; a line that the
// descriptor does not take at once is dropped, and the next line that it takes says how many were.
//
// Thread-safe.

#include <spdlog/sinks/base_sink.h>

#include <cstddef>
#include <mutex>
#include <string_view>

namespace muster {

class LogSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  /// The caller keeps owning `fd`.
  explicit LogSink(int fd) : fd_(fd) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override;
  void flush_() override {}

 private:
  bool TryWrite(std::string_view text) const;

  const int fd_;
  size_t dropped_ = 0;
};

}  // namespace muster
