#include "launcher/driver/job_signals.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace muster::launcher {

void JobSignals::Block() {
  struct sigaction hangup {};
  ::sigaction(SIGHUP, nullptr, &hangup);
  sigset_t handled;
  ::sigemptyset(&handled);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2}) {
    ::sigaddset(&handled, signal);
  }
  if (hangup.sa_handler != SIG_IGN) {
    ::sigaddset(&handled, SIGHUP);  // `nohup muster run` stays as it was meant.
  }
  ::sigprocmask(SIG_BLOCK, &handled, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

JobSignals::JobSignals(Loop& loop) : loop_(loop) {}

JobSignals::~JobSignals() {
  if (signals_.valid()) {
    loop_.Unwatch(signals_.get());
  }
}

Status JobSignals::Watch(std::function<void(int signal)> callback) {
  callback_ = std::move(callback);
  sigset_t blocked;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  signals_.Reset(::signalfd(-1, &blocked, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_.valid()) {
    return Status::Failed(std::string("signalfd: ") + strerror(errno));
  }
  loop_.Watch(signals_.get(), EPOLLIN, [this](uint32_t) { Read(); });
  return Status::Ok();
}

void JobSignals::Read() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    callback_(static_cast<int>(info.ssi_signo));
  }
}

}  // namespace muster::launcher
