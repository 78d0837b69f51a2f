#include "launcher/driver/agent_starter.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/log.h"
#include "common/secret.h"
#include "launcher/agent/bootstrap.h"
#include "launcher/driver/remote_shell.h"

namespace muster::launcher {
namespace {

constexpr size_t kFarewellBytes = 16;
// What a shell exits with when it cannot run the command.
constexpr int kNotExecutable = 126;
constexpr int kNotFound = 127;

// ssh is given no chance to ask: it has no terminal, and this keeps it from asking in a window.
std::vector<std::string> ShellEnvironment() {
  std::vector<std::string> environment = CurrentEnvironment();
  static constexpr std::string_view kName = "SSH_ASKPASS_REQUIRE=";
  std::erase_if(environment, [](const std::string& entry) { return entry.starts_with(kName); });
  environment.push_back(std::string(kName) + "never");
  return environment;
}

}  // namespace

AgentStarter::AgentStarter(Loop& loop,
                           RemoteShellOptions options,
                           Duration start_timeout,
                           Callbacks callbacks,
                           HostResolver::LookUp look_up)
    : loop_(loop),
      options_(std::move(options)),
      start_timeout_(start_timeout),
      callbacks_(std::move(callbacks)),
      resolver_(loop, kLookUpPatience, std::move(look_up)) {}

AgentStarter::~AgentStarter() {
  loop_.Cancel(next_start_);
  for (auto& [host, agent] : agents_) {
    loop_.Cancel(agent.withdrawal);
    if (agent.process == nullptr) {
      continue;
    }
    if (agent.process->place == Place::kRemote) {
      ::kill(-agent.process->spawned.pid, SIGKILL);
    }
    Release(*agent.process);
    [[maybe_unused]] const Result<ExitStatus> reaped = Reap(agent.process->spawned.pid);
  }
}

void AgentStarter::Start(const HostId& host) {
  MUSTER_CHECK(!Has(host), "host " + host.value + " has an agent already");
  const uint64_t number = ++last_number_;
  agents_[host].number = number;
  resolver_.Resolve(host, [this, host, number](bool this_machine) {
    if (!IsWaiting(host, number)) {
      return;
    }
    if (this_machine) {
      StartProcess(host, Place::kLocal);
    } else {
      waiting_.emplace_back(host, number);
      StartWaiting();
    }
  });
}

bool AgentStarter::IsWaiting(const HostId& host, uint64_t number) const {
  const auto it = agents_.find(host);
  return it != agents_.end() && it->second.number == number && it->second.process == nullptr &&
         it->second.withdrawal.value == 0;
}

void AgentStarter::StartWaiting() {
  while (!waiting_.empty() && remote_starts_ < kRemoteStartsMax) {
    const auto [host, number] = std::move(waiting_.front());
    waiting_.pop_front();
    if (IsWaiting(host, number)) {
      StartProcess(host, Place::kRemote);
    }
  }
}

// Never within a call from outside, so that `failed` may be told at once.
void AgentStarter::StartProcess(const HostId& host, Place place) {
  Result<v1::AgentBootstrap> asked = callbacks_.bootstrap(host, place);
  if (agents_.at(host).withdrawal.value != 0) {
    return;  // The callback has thought better of it.
  }
  if (!asked.ok()) {
    Fail(host, asked.status().message());
    return;
  }
  v1::AgentBootstrap bootstrap = std::move(asked).value();
  auto process = std::make_unique<Process>();
  process->place = place;
  bootstrap.set_remote(place == Place::kRemote);
  if (place == Place::kRemote) {
    process->farewell = RandomHex(kFarewellBytes);
    bootstrap.set_farewell(process->farewell);
  }
  process->unsent = EncodeBootstrap(bootstrap);
  if (Status status = Spawn(host, *process); !status.ok()) {
    Fail(host, status.message());
    return;
  }
  if (place == Place::kRemote) {
    ++remote_starts_;
  }
  loop_.Watch(
      process->spawned.pidfd.get(), EPOLLIN, [this, host](uint32_t) { OnProcessEnded(host); });
  process->start_timer = loop_.After(start_timeout_, [this, host] { OnLate(host); });
  agents_.at(host).process = std::move(process);
  Send(host);
}

Status AgentStarter::Spawn(const HostId& host, Process& process) {
  Result<Pipe> input = MakePipe();
  if (!input.ok()) {
    return input.status();
  }
  if (Status status = process.place == Place::kLocal ? SpawnLocal(process, input.value())
                                                     : SpawnRemote(host, process, input.value());
      !status.ok()) {
    return status;
  }
  process.input = std::move(input.value().write);
  ::fcntl(process.input.get(), F_SETFL, O_NONBLOCK);
  return Status::Ok();
}

Status AgentStarter::SpawnLocal(Process& process, const Pipe& input) {
  Result<std::string> program = OwnProgram();
  if (!program.ok()) {
    return program.status();
  }
  SpawnOptions options;
  options.argv = {program.value(), "agent"};
  options.environment = CurrentEnvironment();
  options.stdin_fd = input.read.get();
  Result<SpawnedProcess> spawned = muster::Spawn(options);
  if (!spawned.ok()) {
    return spawned.status();
  }
  process.spawned = std::move(spawned).value();
  return Status::Ok();
}

Status AgentStarter::SpawnRemote(const HostId& host, Process& process, const Pipe& input) {
  Result<std::string> program = OwnProgram();
  Result<Pipe> out = MakePipe();
  Result<Pipe> err = MakePipe();
  if (!program.ok() || !out.ok() || !err.ok()) {
    return !program.ok() ? program.status() : (out.ok() ? err.status() : out.status());
  }
  Result<std::vector<std::string>> argv =
      RemoteShellCommand(options_, host, start_timeout_, program.value());
  if (!argv.ok()) {
    return argv.status();
  }
  SpawnOptions options;
  options.argv = std::move(argv).value();
  options.environment = ShellEnvironment();
  options.stdin_fd = input.read.get();
  options.stdout_fd = out.value().write.get();
  options.stderr_fd = err.value().write.get();
  options.new_session = true;
  // A driver that is killed leaves no ssh, nor what a script in its place has started.
  options.parent_death_signal = SIGKILL;
  if (guard_ == nullptr) {
    guard_ = std::make_unique<discovery::GroupGuard>();
  }
  Result<SpawnedProcess> spawned = muster::Spawn(options);
  if (!spawned.ok()) {
    return Status::Failed(spawned.status().message() +
                          "; install it, or name another remote shell with --rsh-agent");
  }
  process.spawned = std::move(spawned).value();
  guard_->Guard(process.spawned.pid);
  process.out = std::make_unique<ShellOutput>(
      loop_, std::move(out.value().read), [this, host](const std::string& line) {
        OnLine(host, line);
      });
  process.err = std::make_unique<ShellOutput>(
      loop_, std::move(err.value().read), [host](const std::string& line) {
        spdlog::warn("[{}] {}", host.value, line);
      });
  return Status::Ok();
}

// A pipe takes most bootstraps at once; a remote shell that does not read must not stop the loop.
void AgentStarter::Send(const HostId& host) {
  Process& process = *agents_.at(host).process;
  const ssize_t sent = ::write(process.input.get(), process.unsent.data(), process.unsent.size());
  if (sent < 0 && errno != EAGAIN && errno != EINTR) {
    process.unsent.clear();  // Nobody reads any more: the process is about to end, and tells why.
  } else if (sent > 0) {
    process.unsent.erase(0, static_cast<size_t>(sent));
  }
  loop_.Unwatch(process.input.get());
  if (!process.unsent.empty()) {
    loop_.Watch(process.input.get(), EPOLLOUT, [this, host](uint32_t) { Send(host); });
  }
}

void AgentStarter::OnLine(const HostId& host, const std::string& line) {
  Process& process = *agents_.at(host).process;
  if (line == process.farewell) {
    process.said_farewell = true;
  } else {
    spdlog::info("[{}] {}", host.value, line);
  }
}

void AgentStarter::Attached(const HostId& host) {
  const auto it = agents_.find(host);
  if (it == agents_.end() || it->second.process == nullptr || it->second.process->attached) {
    return;
  }
  Process& process = *it->second.process;
  process.attached = true;
  loop_.Cancel(process.start_timer);
  if (process.place == Place::kRemote) {
    --remote_starts_;
    loop_.Cancel(next_start_);
    next_start_ = loop_.After(Duration::zero(), [this] { StartWaiting(); });
  }
}

void AgentStarter::OnLate(const HostId& host) {
  agents_.at(host).process->late = true;
  Kill(host);
}

void AgentStarter::EndInput(const HostId& host) {
  const auto it = agents_.find(host);
  if (it == agents_.end()) {
    return;
  }
  if (it->second.process == nullptr) {
    Withdraw(host);
  } else {
    CloseInput(*it->second.process);
  }
}

void AgentStarter::Kill(const HostId& host) {
  EndInput(host);
  const auto it = agents_.find(host);
  if (it != agents_.end() && it->second.process != nullptr) {
    ::kill(-it->second.process->spawned.pid, SIGKILL);
  }
}

void AgentStarter::Withdraw(const HostId& host) {
  Agent& agent = agents_.at(host);
  if (agent.withdrawal.value == 0) {
    agent.withdrawal = loop_.After(Duration::zero(), [this, host] {
      agents_.erase(host);
      Ended ended;
      ended.farewell = true;
      callbacks_.ended(host, ended);
    });
  }
}

void AgentStarter::CloseInput(Process& process) {
  if (process.input.valid()) {
    loop_.Unwatch(process.input.get());
    process.input.Reset();
  }
}

// Nothing of it calls back any more.
void AgentStarter::Release(Process& process) {
  CloseInput(process);
  loop_.Cancel(process.start_timer);
  loop_.Unwatch(process.spawned.pidfd.get());
  process.out.reset();
  process.err.reset();
}

void AgentStarter::OnProcessEnded(const HostId& host) {
  Process& process = *agents_.at(host).process;
  Ended ended;
  ended.place = process.place;
  if (process.place == Place::kRemote) {
    // What a script has started goes with it, and before it is reaped, while its number is its own.
    ::kill(-process.spawned.pid, SIGKILL);
    guard_->Forget(process.spawned.pid);
    process.out->Finish();
    process.err->Finish();
    ended.last_words = process.err->last_words();
    remote_starts_ -= process.attached ? 0 : 1;
  }
  ended.farewell = process.said_farewell;
  ended.late = process.late;
  if (const Result<ExitStatus> reaped = Reap(process.spawned.pid); reaped.ok()) {
    ended.exit = reaped.value();
  }
  Release(process);
  agents_.erase(host);
  StartWaiting();
  callbacks_.ended(host, ended);
}

std::string AgentStarter::Describe(const Ended& ended) {
  const bool remote = ended.place == Place::kRemote;
  std::string text = remote ? "its remote shell " : "its agent ";
  if (ended.late) {
    text += "was killed, because its agent had not attached within the start timeout";
  } else if (ended.exit.signal != 0) {
    text += "was killed by signal " + std::to_string(ended.exit.signal);
  } else {
    text += "exited with code " + std::to_string(ended.exit.code);
  }
  if (!ended.last_words.empty()) {
    text += ": " + ended.last_words;
  }
  if (remote && (ended.exit.code == kNotFound || ended.exit.code == kNotExecutable)) {
    text += " (is muster installed there under the same path? If not: --remote-muster PATH)";
  }
  return text;
}

void AgentStarter::Fail(const HostId& host, const std::string& message) {
  agents_.erase(host);
  callbacks_.failed(host, message);
}

}  // namespace muster::launcher
