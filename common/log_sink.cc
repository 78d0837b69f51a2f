#include "common/log_sink.h"

#include <poll.h>
#include <unistd.h>

#include <string>

namespace muster {
namespace {

// A pipe that polls as writable takes this much without blocking (PIPE_BUF).
constexpr size_t kLineBytesMax = 4096;

}  // namespace

void LogSink::sink_it_(const spdlog::details::log_msg& message) {
  spdlog::memory_buf_t formatted;
  formatter_->format(message, formatted);
  std::string_view line(formatted.data(), formatted.size());
  std::string cut;
  if (line.size() > kLineBytesMax) {
    cut = std::string(line.substr(0, kLineBytesMax - 4)) + "...\n";
    line = cut;
  }
  if (dropped_ > 0 && TryWrite("muster: " + std::to_string(dropped_) +
                               " log lines were dropped: nobody took them\n")) {
    dropped_ = 0;
  }
  if (dropped_ > 0 || !TryWrite(line)) {
    ++dropped_;
  }
}

bool LogSink::TryWrite(std::string_view text) const {
  pollfd polled{fd_, POLLOUT, 0};
  return ::poll(&polled, 1, 0) == 1 && (polled.revents & POLLOUT) != 0 &&
         ::write(fd_, text.data(), text.size()) > 0;
}

}  // namespace muster
