#include "launcher/agent/reaper.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <utility>

#include "common/log.h"
#include "common/process.h"
#include "common/write_line.h"
#include "launcher/agent/agent_main.h"
#include "launcher/agent/agent_process.h"
#include "launcher/agent/bootstrap.h"
#include "launcher/agent/join.h"
#include "launcher/agent/socket_directory.h"

namespace muster::launcher {
namespace {

constexpr std::chrono::milliseconds kBootstrapDeadline{10'000};
constexpr Duration kAgentDeadline = std::chrono::seconds(1);
// Together less than the second by which the driver waits longer than the agent.
constexpr Duration kLeaseMargin = std::chrono::milliseconds(500);
constexpr int kLeaseLookMilliseconds = 250;
constexpr Duration kLastLinePatience = std::chrono::seconds(1);
constexpr int kExitUsage = 2;

// Ctrl-C at the driver's terminal and broken pipes end no agent. Blocked signals are read from a
// signalfd, here and in the agent proper.
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

// Odd remote shells pass descriptors on, whose other ends would never see their end.
void CloseInheritedFds() {
  ::syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0U);
}

void TakeNoNotice(int /*signal*/) {}

// From here on the remote shell may go, with a hang-up, a kill of its group or a reader that takes
// nothing any more: the lease alone decides. SIGHUP is neither ignored, which workers would
// inherit, nor kept for the agent proper, which would take it for a wish to leave. `signals` loses
// it.
void LeaveRemoteShell(sigset_t& signals) {
  ::setsid();  // Fails for the leader of a group, which a shell that executes us has made us.
  ::prctl(PR_SET_PDEATHSIG, 0);
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  }
  if (sigismember(&signals, SIGHUP) == 1) {
    struct sigaction action {};
    action.sa_handler = TakeNoNotice;
    action.sa_flags = SA_RESTART;
    ::sigaction(SIGHUP, &action, nullptr);
    sigset_t hangup;
    sigemptyset(&hangup);
    sigaddset(&hangup, SIGHUP);
    ::sigprocmask(SIG_UNBLOCK, &hangup, nullptr);
    sigdelset(&signals, SIGHUP);
  }
}

int Fail(const Status& status) {
  std::fprintf(stderr, "muster: agent: %s\n", status.message().c_str());
  return status.code() == StatusCode::kInvalid ? kExitUsage : kExitAbandoned;
}

int CodeOf(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void SayWhatStays(const SweepTarget& target) {
  WriteLine(STDERR_FILENO,
            "muster: agent " + target.host +
                ": some processes of this job do not end; look for MUSTER_JOB=" + target.job,
            kLastLinePatience);
}

}  // namespace

Reaper::Reaper(ReaperOptions options, const LeasePage& lease, UniqueFd signals)
    : options_(std::move(options)),
      lease_(lease),
      agent_pidfd_(OpenPidfd(options_.agent)),
      signals_(std::move(signals)) {}

int Reaper::Run() {
  while (Step()) {
  }
  int status = 0;
  while (::waitpid(options_.agent, &status, 0) < 0 && errno == EINTR) {
  }
  SweepAndLeave();
  return CodeOf(status);
}

void Reaper::SweepAndLeave() {
  const bool all = Sweep(options_.target, kSweepDeadline);
  if (!all) {
    SayWhatStays(options_.target);
  }
  RemoveSocketDirectory(options_.directory);
  if (all && !options_.farewell.empty()) {
    WriteLine(STDOUT_FILENO, options_.farewell, kLastLinePatience);
  }
}

// Waits for the next event; false when the agent proper has ended.
bool Reaper::Step() {
  const bool watch_driver = options_.has_lifeline && !driver_gone_;
  std::array<pollfd, 3> entries{pollfd{agent_pidfd_.get(), POLLIN, 0},
                                pollfd{signals_.get(), POLLIN, 0},
                                pollfd{watch_driver ? STDIN_FILENO : -1, POLLRDHUP, 0}};
  // The pidfd wakes us in any case; a lease is looked at now and then.
  int timeout = options_.has_lifeline ? -1 : kLeaseLookMilliseconds;
  if (driver_gone_) {
    const Duration left = std::max(agent_deadline_ - SteadyClock().Now(), Duration::zero());
    timeout = static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
  }
  const int ready = ::poll(entries.data(), entries.size(), timeout);
  if (ready == 0 && (driver_gone_ || LeaseIsOver())) {
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

// The agent proper ends by itself then, unless it is stopped or hangs.
bool Reaper::LeaseIsOver() const {
  const std::optional<Instant> end = lease_.Read();
  return end && BootClock().Now() > *end + kLeaseMargin;
}

void Reaper::OnSignals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGINT) {
      OnInterrupt();
    } else if (info.ssi_signo != SIGCHLD) {
      ::kill(options_.agent, SIGTERM);
    }
  }
}

// Ctrl-C: leave in order. Once more: leave.
void Reaper::OnInterrupt() {
  ::kill(options_.agent, interrupted_ ? SIGKILL : SIGTERM);
  interrupted_ = true;
}

void Reaper::OnDriverGone() {
  driver_gone_ = true;
  agent_deadline_ = SteadyClock().Now() + kAgentDeadline;
}

// It is stopped or hangs; the sweep is done here instead.
void Reaper::KillLateAgent() {
  ::kill(options_.agent, SIGKILL);
  agent_deadline_ = SteadyClock().Now() + kAgentDeadline;
}

namespace {

// What an earlier agent of this host has left goes first: that agent was cut off or killed, and its
// workers may hold devices and ports. Its own two processes end by themselves.
void SweepEarlierAgent(const v1::AgentBootstrap& given) {
  const SweepTarget earlier{given.job_id(), given.host(), false, {}};
  if (!Sweep(earlier, kSweepDeadline)) {
    SayWhatStays(earlier);
  }
}

int RunBoth(const v1::AgentBootstrap& given,
            const std::optional<DialIn>& dial_in,
            const sigset_t& signals) {
  if (Status status = InitLog("agent " + given.host(), given.log_level()); !status.ok()) {
    return Fail(status);
  }
  if (given.remote() && !dial_in) {
    SweepEarlierAgent(given);
  }
  Result<std::string> directory = MakeSocketDirectory();
  UniqueFd self = OpenPidfd(::getpid());
  UniqueFd signal_fd(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!directory.ok() || !self.valid() || !signal_fd.valid()) {
    return Fail(directory.ok() ? Status::Failed(std::string("no descriptors: ") + strerror(errno))
                               : directory.status());
  }
  LeasePage lease;
  const pid_t agent = ::fork();  // Without exec: no other thread runs yet.
  if (agent == 0) {
    signal_fd.Reset();
    if (given.remote()) {
      ::setpgid(0, 0);  // A kill of the reaper's group leaves one of the two to sweep.
    }
    const int code = RunAgentProper(given, directory.value(), std::move(self), lease, dial_in);
    spdlog::default_logger()->flush();
    ::_exit(code);  // Static destructors have nothing to do that could be worth a hang.
  }
  if (agent < 0) {
    RemoveSocketDirectory(directory.value());
    return Fail(Status::Failed(std::string("fork: ") + strerror(errno)));
  }
  if (dial_in) {
    ::signal(SIGINT, SIG_DFL);  // The signalfd does not see what is ignored.
  }
  ReaperOptions options;
  options.agent = agent;
  options.target = {given.job_id(), given.host(), true, {}};
  if (given.remote()) {
    options.target.directory = directory.value();
  }
  options.directory = directory.value();
  options.has_lifeline = !given.remote();
  options.farewell = given.farewell();
  return Reaper(std::move(options), lease, std::move(signal_fd)).Run();
}

}  // namespace

int RunAgent() {
  CloseInheritedFds();
  sigset_t signals = PrepareSignals();
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  Result<v1::AgentBootstrap> bootstrap = ReadBootstrap(STDIN_FILENO, kBootstrapDeadline);
  if (!bootstrap.ok()) {
    return Fail(bootstrap.status());
  }
  if (bootstrap.value().remote()) {
    LeaveRemoteShell(signals);
  }
  return RunBoth(bootstrap.value(), std::nullopt, signals);
}

int RunJoinedAgent(const JoinOptions& options) {
  CloseInheritedFds();
  sigset_t signals = PrepareSignals();
  // Nobody else would hear Ctrl-C. Only this process does; the agent proper goes on ignoring it.
  sigaddset(&signals, SIGINT);
  ::sigprocmask(SIG_BLOCK, &signals, nullptr);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  Result<v1::AgentBootstrap> bootstrap = MakeJoinBootstrap(options);
  if (!bootstrap.ok()) {
    return Fail(bootstrap.status());
  }
  return RunBoth(bootstrap.value(), DialIn{options.slots, options.timeout}, signals);
}

}  // namespace muster::launcher
