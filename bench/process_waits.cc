#include "bench/process_waits.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace muster::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kLinesShown = 12;

sigset_t Interrupts() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

}  // namespace

void BlockInterrupts() {
  const sigset_t signals = Interrupts();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

int MillisecondsUntil(Deadline deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left + 1, 0, 60'000));
}

int InterruptFd() {
  static const UniqueFd fd = [] {
    const sigset_t signals = Interrupts();
    return UniqueFd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  }();
  return fd.get();
}

bool EndsBy(const UniqueFd& pidfd, Deadline deadline) {
  pollfd entry{.fd = pidfd.get(), .events = POLLIN, .revents = 0};
  int ready = 0;
  do {
    ready = ::poll(&entry, 1, MillisecondsUntil(deadline));
  } while ((ready < 0 && errno == EINTR) || (ready == 0 && Clock::now() < deadline));
  return ready > 0;
}

void SignalPidfd(const UniqueFd& pidfd, int signal) {
  if (pidfd.valid()) {
    ::syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0);
  }
}

std::string LastLines(const std::string& path) {
  std::ifstream file(path);
  std::deque<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
    if (lines.size() > kLinesShown) {
      lines.pop_front();
    }
  }
  std::string text;
  for (const std::string& line : lines) {
    text += "\n    " + line;
  }
  return text;
}

std::string Beside(const std::string& program) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  return (self.parent_path() / program).string();
}

}  // namespace muster::bench
