#include "common/write_line.h"

#include <poll.h>
#include <unistd.h>

namespace muster {
namespace {

// A pipe that polls as writable takes this much without blocking (PIPE_BUF).
constexpr size_t kLineBytesMax = 4096;

}  // namespace

void WriteLine(int fd, const std::string& text, Duration patience) {
  pollfd entry{fd, POLLOUT, 0};
  const auto limit = std::chrono::ceil<std::chrono::milliseconds>(patience).count();
  // With nobody at the other end, which polls as an error, a write would raise a signal.
  if (::poll(&entry, 1, static_cast<int>(limit)) == 1 && entry.revents == POLLOUT) {
    const std::string line = text.substr(0, kLineBytesMax - 1) + "\n";
    [[maybe_unused]] const ssize_t size = ::write(fd, line.data(), line.size());
  }
}

}  // namespace muster
