#include "launcher/agent/last_line.h"

#include <poll.h>
#include <unistd.h>

namespace muster::launcher {
namespace {

constexpr int kPatienceMilliseconds = 1000;

}  // namespace

void WriteLine(int fd, const std::string& text) {
  pollfd entry{fd, POLLOUT, 0};
  if (::poll(&entry, 1, kPatienceMilliseconds) == 1) {
    const std::string line = text + "\n";
    [[maybe_unused]] const ssize_t size = ::write(fd, line.data(), line.size());
  }
}

}  // namespace muster::launcher
