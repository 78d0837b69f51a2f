#include "launcher/agent/reaper.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "common/log.h"
#include "common/process.h"
#include "launcher/agent/agent_main.h"
#include "launcher/agent/agent_process.h"
#include "launcher/agent/bootstrap.h"
#include "launcher/agent/socket_directory.h"

namespace muster::launcher {
namespace {

constexpr std::chrono::milliseconds kBootstrapDeadline{10'000};
constexpr Duration kAgentDeadline = std::chrono::seconds(1);
constexpr int kExitUsage = 2;

// Ctrl-C at the terminal and broken pipes end no agent: the driver decides. Blocked signals are
// read from a signalfd, here and in the agent proper.
sigset_t PrepareSignals() {
  ::signal(SIGINT, SIG_IGN);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGCHLD, SIG_DFL);  // Ignored by the parent, it would make children vanish unreaped.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  sigaddset(&signals, SIGTERM);
  struct sigaction hangup {};
  ::sigaction(SIGHUP, nullptr, &hangup);
  if (hangup.sa_handler != SIG_IGN) {
    sigaddset(&signals, SIGHUP);  // What nohup has set stays: ignored.
  }
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  return signals;
}

int Fail(const Status& status) {
  std::fprintf(stderr, "muster: agent: %s\n", status.message().c_str());
  return status.code() == StatusCode::kInvalid ? kExitUsage : kExitAbandoned;
}

int CodeOf(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

Reaper::Reaper(pid_t agent, UniqueFd signals, SweepTarget target, std::string directory)
    : agent_(agent),
      agent_pidfd_(OpenPidfd(agent)),
      signals_(std::move(signals)),
      target_(std::move(target)),
      directory_(std::move(directory)) {}

int Reaper::Run() {
  while (Step()) {
  }
  int status = 0;
  while (::waitpid(agent_, &status, 0) < 0 && errno == EINTR) {
  }
  if (!Sweep(target_, kSweepDeadline)) {
    std::fprintf(
        stderr,
        "muster: agent %s: some processes of this job do not end; look for MUSTER_JOB=%s\n",
        target_.host.c_str(),
        target_.job.c_str());
  }
  RemoveSocketDirectory(directory_);
  return CodeOf(status);
}

// Waits for the next event; false when the agent proper has ended.
bool Reaper::Step() {
  std::array<pollfd, 3> entries{pollfd{agent_pidfd_.get(), POLLIN, 0},
                                pollfd{signals_.get(), POLLIN, 0},
                                pollfd{driver_gone_ ? -1 : STDIN_FILENO, POLLRDHUP, 0}};
  int timeout = -1;  // The pidfd wakes us in any case.
  if (driver_gone_) {
    const Duration left = std::max(agent_deadline_ - SteadyClock().Now(), Duration::zero());
    timeout = static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
  }
  const int ready = ::poll(entries.data(), entries.size(), timeout);
  if (ready == 0) {
    KillLateAgent();
  }
  if (ready <= 0) {
    return true;
  }
  if (entries[1].revents != 0) {
    OnSignals();
  }
  if (entries[2].revents != 0) {
    OnDriverGone();
  }
  return entries[0].revents == 0;
}

void Reaper::OnSignals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo != SIGCHLD) {
      ::kill(agent_, SIGTERM);
    }
  }
}

void Reaper::OnDriverGone() {
  driver_gone_ = true;
  agent_deadline_ = SteadyClock().Now() + kAgentDeadline;
}

// It is stopped or hangs; the sweep is done here instead.
void Reaper::KillLateAgent() {
  ::kill(agent_, SIGKILL);
  agent_deadline_ = SteadyClock().Now() + kAgentDeadline;
}

int RunAgent() {
  const sigset_t signals = PrepareSignals();
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  Result<v1::AgentBootstrap> bootstrap = ReadBootstrap(STDIN_FILENO, kBootstrapDeadline);
  if (!bootstrap.ok()) {
    return Fail(bootstrap.status());
  }
  const v1::AgentBootstrap& given = bootstrap.value();
  if (Status status = InitLog("agent " + given.host(), given.log_level()); !status.ok()) {
    return Fail(status);
  }
  Result<std::string> directory = MakeSocketDirectory();
  UniqueFd self = OpenPidfd(::getpid());
  UniqueFd signal_fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!directory.ok() || !self.valid() || !signal_fd.valid()) {
    return Fail(directory.ok() ? Status::Failed(std::string("no descriptors: ") + strerror(errno))
                               : directory.status());
  }
  const pid_t agent = ::fork();  // Without exec: no other thread runs yet.
  if (agent == 0) {
    signal_fd.Reset();
    const int code = RunAgentProper(given, directory.value(), std::move(self));
    spdlog::default_logger()->flush();
    ::_exit(code);  // Static destructors have nothing to do that could be worth a hang.
  }
  if (agent < 0) {
    RemoveSocketDirectory(directory.value());
    return Fail(Status::Failed(std::string("fork: ") + strerror(errno)));
  }
  return Reaper(
             agent, std::move(signal_fd), {given.job_id(), given.host(), true}, directory.value())
      .Run();
}

}  // namespace muster::launcher
