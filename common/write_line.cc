#include "common/write_line.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "common/unique_fd.h"

namespace muster {
namespace {

// Goes into a pipe whole or not at all (PIPE_BUF).
constexpr size_t kLineBytesMax = 4096;

}  // namespace

// Others may write there too, so what polls as writable may be full by the time of the write. A
// description of our own does not block; a socket, which has none, can be asked not to.
void WriteLine(int fd, const std::string& text, Duration patience) {
  const std::string line = text.substr(0, kLineBytesMax - 1) + "\n";
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  const UniqueFd own(::open(path.c_str(), O_WRONLY | O_APPEND | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  pollfd entry{own.valid() ? own.get() : fd, POLLOUT, 0};
  const auto limit = std::chrono::ceil<std::chrono::milliseconds>(patience).count();
  // With nobody at the other end, which polls as an error, a write would raise a signal.
  if (::poll(&entry, 1, static_cast<int>(limit)) == 1 && entry.revents == POLLOUT) {
    [[maybe_unused]] ssize_t size = 0;
    if (own.valid()) {
      size = ::write(own.get(), line.data(), line.size());
    } else if (::send(fd, line.data(), line.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 &&
               errno == ENOTSOCK) {
      size = ::write(fd, line.data(), line.size());  // There is no /proc.
    }
  }
}

}  // namespace muster
