// The part of Driver that has agents started, hears them, and notices their end. What concerns
// other machines' way to this one is in driver_network.cc.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "common/log.h"
#include "common/process.h"
#include "common/secret.h"
#include "common/version.h"
#include "launcher/driver/convert.h"
#include "launcher/driver/driver.h"

namespace muster::launcher {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::seconds;

// From StopAgent to the end of the lifeline, and from there to SIGKILL.
constexpr Duration kStopPatience = seconds(4);
constexpr Duration kKillPatience = seconds(3);
// An agent that cannot be reached when it is to stop is left to its lease.
constexpr Duration kUnreachablePatience = seconds(1);
// Silent for so long: suspected, and with it all that have been silent for nearly as long, since
// it may be the driver that is cut off.
constexpr Duration kSuspectAfter = seconds(2);
constexpr Duration kSilentTooAfter = seconds(1);
// The driver's lease ends later than the agent's own.
constexpr Duration kDriverLeaseMargin = seconds(1);
constexpr size_t kStartBytes = 8;
constexpr int kNotExecutable = 126;
constexpr int kNotFound = 127;

uint64_t Milliseconds(Duration duration) {
  return static_cast<uint64_t>(duration_cast<milliseconds>(duration).count());
}

// What would be wrong or unsafe on another process, by Horovod's rules.
bool Travels(std::string_view entry) {
  static constexpr std::array<std::string_view, 4> kLeftOut{
      "BASH_FUNC_", "OLDPWD=", "_HOROVOD_SECRET_KEY=", "MUSTER_SECRET"};
  for (const std::string_view prefix : kLeftOut) {
    if (entry.substr(0, prefix.size()) == prefix) {
      return false;
    }
  }
  return true;
}

// What describes this machine or this login, and would be wrong on another machine.
bool BelongsToThisMachine(std::string_view name) {
  static constexpr std::array<std::string_view, 9> kNames{"HOSTNAME",
                                                          "SSH_AUTH_SOCK",
                                                          "SSH_CLIENT",
                                                          "SSH_CONNECTION",
                                                          "SSH_TTY",
                                                          "XDG_RUNTIME_DIR",
                                                          "XDG_SESSION_ID",
                                                          "DBUS_SESSION_BUS_ADDRESS",
                                                          "DISPLAY"};
  return name.ends_with("VISIBLE_DEVICES") ||
         std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > 0; });
}

// Else the host could be reached, and something is wrong there: no muster, another version of it,
// no such network interface.
bool IsUnreachable(const AgentStarter::Ended& ended) {
  return ended.place == AgentStarter::Place::kRemote && ended.exit.code != kExitUsage &&
         ended.exit.code != kNotExecutable && ended.exit.code != kNotFound;
}

}  // namespace

v1::Welcome Driver::MakeWelcome(AgentKind kind) const {
  v1::Welcome welcome;
  for (const std::string& word : options_.command) {
    welcome.add_argv(word);
  }
  const std::vector<std::string>& asked = options_.forward_environment;
  auto& environment = *welcome.mutable_environment();
  for (const std::string& entry : CurrentEnvironment()) {
    const size_t equals = entry.find('=');
    if (equals == std::string::npos || !Travels(entry)) {
      continue;
    }
    const std::string name = entry.substr(0, equals);
    const bool stays = kind != AgentKind::kLocal && BelongsToThisMachine(name) &&
                       std::find(asked.begin(), asked.end(), name) == asked.end();
    if (!stays && IsAscii(name)) {
      environment[name] = entry.substr(equals + 1);
    }
  }
  for (const auto& [name, value] : options_.worker_environment) {
    environment[name] = value;
  }
  std::array<char, 4096> directory{};
  if (::getcwd(directory.data(), directory.size()) != nullptr) {
    welcome.set_directory(directory.data());
  }
  welcome.set_grace_ms(Milliseconds(options_.membership.grace));
  welcome.set_driver_grace_ms(Milliseconds(options_.membership.driver_grace));
  welcome.set_stall_warning_ms(Milliseconds(options_.stall_warning));
  welcome.set_stall_shutdown_ms(Milliseconds(options_.stall_shutdown));
  welcome.set_elastic(options_.membership.elastic);
  welcome.set_port_first(options_.network.ports.first);
  welcome.set_port_last(options_.network.ports.last);
  if (kind == AgentKind::kLocal) {
    for (const std::string& literal : listen_) {
      welcome.add_listen()->set_literal(literal);
    }
  }
  return welcome;
}

// ---------------------------------------------------------------- start

void Driver::Perform(const StartAgent& effect, const std::string& /*reason*/) {
  const auto it = agents_.find(effect.host);
  if (it != agents_.end()) {
    it->second.start_again = true;  // The old one is still ending.
    return;
  }
  if (dialled_in_ != nullptr) {
    ApplyLater(AgentStartFailed{effect.host, "it has not dialled in", true});
    return;
  }
  agents_[effect.host] = Agent{};
  starter_.Start(effect.host);
}

Result<v1::AgentBootstrap> Driver::MakeBootstrap(const HostId& host, AgentStarter::Place place) {
  const bool remote = place == AgentStarter::Place::kRemote;
  Agent& agent = agents_.at(host);
  agent.kind = remote ? AgentKind::kRemote : AgentKind::kLocal;
  agent.start = RandomHex(kStartBytes);
  v1::AgentBootstrap bootstrap;
  bootstrap.set_host(host.value);
  bootstrap.set_job_id(job_id_);
  bootstrap.set_secret(secret_);
  bootstrap.set_log_level(options_.log_level);
  bootstrap.set_protocol(kProtocolVersion);
  bootstrap.set_remote(remote);
  bootstrap.set_start(agent.start);
  if (!remote) {
    bootstrap.add_driver()->set_literal(service_.address());
    return bootstrap;
  }
  if (Status open = OpenToNetwork(); !open.ok()) {
    return open;
  }
  for (const std::string& literal : service_.routable_addresses()) {
    bootstrap.add_driver()->set_literal(literal);
  }
  for (const std::string& name : options_.network.interfaces) {
    bootstrap.add_network_interfaces(name);
  }
  return bootstrap;
}

void Driver::OnAgentNotStarted(const HostId& host, const std::string& message, bool unreachable) {
  const auto it = agents_.find(host);
  if (it == agents_.end()) {
    return;
  }
  const bool again = it->second.start_again;
  loop_.Cancel(it->second.stop_timer);
  agents_.erase(it);
  spdlog::info("host {}: no agent could be started: {}", host.value, message);
  if (again && !finishing_) {
    Perform(StartAgent{host}, "");  // What failed was stopped before: it answers no order.
  } else {
    ApplyLater(AgentStartFailed{host, message, unreachable});
  }
  StopIfAllAgentsAreOver();
}

// ---------------------------------------------------------------- what agents say

std::optional<std::string> Driver::OnAgentHello(const HostId& host, const v1::AgentHello& hello) {
  const auto it = agents_.find(host);
  if (finishing_) {
    return "the job is ending";
  }
  if (hello.slots() == 0) {
    const bool awaited = it != agents_.end() && !it->second.greeted && !it->second.lost &&
                         it->second.kind != AgentKind::kJoined && hello.start() == it->second.start;
    return awaited ? std::nullopt : std::optional<std::string>("this host has no part in the job");
  }
  if (dialled_in_ == nullptr) {
    return "this job finds its hosts by itself; agents dial in with --accept-agents";
  }
  if (it == agents_.end()) {
    return std::nullopt;
  }
  if (it->second.connected) {
    return "host " + host.value + " has an agent; another machine needs another name (--host)";
  }
  if (it->second.boot_id == hello.boot_id()) {
    return "the earlier agent of host " + host.value + " may still be alive; its lease is awaited";
  }
  LoseAgent(host, "its machine was started anew");
  return finishing_ ? std::optional<std::string>("the job is ending") : std::nullopt;
}

void Driver::OnAgentAttached(const HostId& host, const v1::AgentHello& hello) {
  Agent& agent = agents_[host];
  if (hello.slots() > 0) {
    agent.kind = AgentKind::kJoined;
    spdlog::info("host {} has dialled in with {} slots", host.value, hello.slots());
  } else {
    starter_.Attached(host);
  }
  agent.greeted = agent.connected = true;
  agent.boot_id = hello.boot_id();
  agent.last_heard = loop_.Now();
  agent.last_acknowledged = boot_clock_.Now();
  v1::AgentOrder order;
  *order.mutable_welcome() = MakeWelcome(agent.kind);
  service_.Send(host, std::move(order));
  if (agent.stopping) {
    v1::AgentOrder stop;
    stop.mutable_stop_agent();
    service_.Send(host, std::move(stop));
    return;
  }
  if (agent.kind == AgentKind::kJoined) {
    dialled_in_->Joined(host, hello.slots());
  }
  Announce(host, hello);
}

void Driver::OnAgentResumed(const HostId& host) {
  const auto it = agents_.find(host);
  if (it == agents_.end()) {
    return;
  }
  spdlog::warn("host {}: its agent is attached again", host.value);
  it->second.connected = true;
  it->second.last_acknowledged = boot_clock_.Now();  // The answer to a hello renews the lease.
  HeardOf(host, it->second);
}

void Driver::OnAgentSummary(const HostId& host) {
  const auto it = agents_.find(host);
  if (it != agents_.end()) {
    it->second.last_acknowledged = boot_clock_.Now();
    HeardOf(host, it->second);
  }
}

void Driver::HeardOf(const HostId& host, Agent& agent) {
  agent.last_heard = loop_.Now();
  if (std::exchange(agent.suspected, false)) {
    Apply(AgentReattached{host});
  }
}

void Driver::OnAgentReport(const HostId& host, const v1::AgentReport& report) {
  const auto it = agents_.find(host);
  if (it == agents_.end()) {
    return;
  }
  const AgentKind kind = it->second.kind;
  HeardOf(host, it->second);
  if (report.has_listeners_opened()) {
    OnListenersOpened(host, report.listeners_opened().address().literal());
    return;
  }
  if (report.has_drain_requested() && kind == AgentKind::kJoined) {
    dialled_in_->Left(host);
  }
  const std::optional<Incarnation> subject = SubjectOf(report);
  const auto worker = subject ? workers_.find(*subject) : workers_.end();
  if (worker != workers_.end() && worker->second.host != host) {
    WarnOnce("host " + host.value + ": its agent speaks of workers of other hosts; not believed");
    return;
  }
  // Either of these gives its slot back, whatever became of it.
  const bool over = report.has_worker_exited() || report.has_spawn_failed();
  if (subject && refused_.contains(*subject) && !over) {
    return;
  }
  if (report.has_worker_exited() && subject) {
    trace_.Write("reaped",
                 {{"host", host.value},
                  {"incarnation", subject->value},
                  {"code", report.worker_exited().code()},
                  {"signal", report.worker_exited().signal()}});
  }
  if (worker != workers_.end() && over) {
    workers_.erase(worker);
  }
  if (const std::optional<Event> event = ToEvent(report, host)) {
    Apply(*event);
  }
}

void Driver::OnAgentDetached(const HostId& host, const std::string& why) {
  const auto it = agents_.find(host);
  if (it == agents_.end()) {
    return;
  }
  it->second.connected = false;
  if (!it->second.stopping) {
    spdlog::info("host {}: {}", host.value, why);
  }
  StopAwaitingListeners(host);
  CheckAgentOver(host);
}

// ---------------------------------------------------------------- end

void Driver::OnAgentProcessEnded(const HostId& host, const AgentStarter::Ended& ended) {
  const auto it = agents_.find(host);
  if (it != agents_.end()) {
    it->second.ended = ended;
    CheckAgentOver(host);
  }
}

// A local agent is over when its process has ended and its stream is closed: only then are its
// workers surely gone, because each of its two processes outlives them. A remote shell proves that
// only if it has passed the farewell on. What has neither is over when it is to stop, or else when
// its lease is (EndLeases).
void Driver::CheckAgentOver(const HostId& host) {
  const auto it = agents_.find(host);
  if (it == agents_.end() || it->second.connected) {
    return;
  }
  const Agent& agent = it->second;
  const bool ended = agent.ended.has_value();
  bool over = false;
  switch (agent.kind) {
    case AgentKind::kLocal:
      over = ended;
      break;
    case AgentKind::kRemote:
      over = ended && (!agent.greeted || agent.stopping || agent.lost || agent.ended->farewell);
      break;
    case AgentKind::kJoined:
      over = agent.stopping;
      break;
  }
  if (over) {
    OnAgentOver(host, Agent(agent));
  }
}

// Its session and its workers; not its process.
void Driver::ForgetAgent(const HostId& host) {
  service_.Forget(host);
  held_back_.erase(host);
  StopAwaitingListeners(host);
  std::erase_if(workers_, [&](const auto& entry) { return entry.second.host == host; });
}

void Driver::OnAgentOver(const HostId& host, const Agent& agent) {
  if (!agent.greeted && !agent.stopping) {
    OnAgentNotStarted(host, AgentStarter::Describe(*agent.ended), IsUnreachable(*agent.ended));
    return;
  }
  loop_.Cancel(agent.stop_timer);
  agents_.erase(host);
  ForgetAgent(host);
  if (agent.kind == AgentKind::kJoined && dialled_in_ != nullptr) {
    dialled_in_->Left(host);
  }
  if (!agent.stopping && !agent.lost) {
    const std::string evidence = AgentStarter::Describe(*agent.ended);
    if (agent.kind == AgentKind::kLocal) {
      // If both processes of the agent were killed at once, nobody has ended what its workers had
      // forked away; that has to be gone before the host's slots are used again.
      sweeper_.Start(host, [this, host, evidence] { Apply(AgentLost{host, evidence}); });
    } else {
      Apply(AgentLost{host, evidence});
    }
  }
  if (agent.start_again && !finishing_) {
    Perform(StartAgent{host}, "");
  }
  StopIfAllAgentsAreOver();
}

void Driver::SuspectSilentAgents(Instant now) {
  const auto silent_for = [&](const Agent& agent, Duration time) {
    return agent.announced && !agent.suspected && !agent.lost && now - agent.last_heard > time;
  };
  if (std::none_of(agents_.begin(), agents_.end(), [&](const auto& entry) {
        return silent_for(entry.second, kSuspectAfter);
      })) {
    return;
  }
  AgentSuspected event;
  for (auto& [host, agent] : agents_) {
    if (silent_for(agent, kSilentTooAfter)) {
      agent.suspected = true;
      event.hosts.push_back(host);
    }
  }
  Apply(event);
}

void Driver::EndLeases() {
  const Instant now = boot_clock_.Now();
  const Duration lease = options_.membership.driver_grace + kDriverLeaseMargin;
  std::vector<HostId> over;
  for (const auto& [host, agent] : agents_) {
    if (agent.kind != AgentKind::kLocal && agent.greeted && !agent.lost &&
        now - agent.last_acknowledged > lease) {
      over.push_back(host);
    }
  }
  for (const HostId& host : over) {
    LoseAgent(host,
              "nothing was heard of it for " +
                  std::to_string(duration_cast<seconds>(lease).count()) +
                  " s, so its workers have ended");
  }
}

// An agent on this machine has no lease, so that a driver that was stopped finds all of them as
// they were. One that is itself stopped, or hangs, would keep its slots for ever, and whoever needs
// the State of its workers waiting. When its lifeline ends its reaper kills it within a second; if
// that is stopped too, both are killed from here.
void Driver::EndStuckAgents(Instant now) {
  const Duration limit = options_.membership.driver_grace + kDriverLeaseMargin;
  for (auto& [host, agent] : agents_) {
    if (agent.kind != AgentKind::kLocal || !agent.announced || agent.stopping || agent.stuck ||
        now - agent.last_heard <= limit) {
      continue;
    }
    agent.stuck = true;
    spdlog::warn("host {}: its agent does not answer and is ended", host.value);
    starter_.EndInput(host);
    agent.stop_timer = loop_.After(kKillPatience, [this, host = host] { starter_.Kill(host); });
  }
}

// The session is closed for good. What is left of a remote shell ends on its own time.
void Driver::LoseAgent(const HostId& host, const std::string& evidence) {
  const auto it = agents_.find(host);
  if (it == agents_.end()) {
    return;  // The loss of another one has ended the job.
  }
  Agent& agent = it->second;
  agent.lost = true;
  agent.connected = false;
  const bool stopping = agent.stopping;
  ForgetAgent(host);
  if (starter_.Has(host)) {
    starter_.Kill(host);
  } else {
    OnAgentOver(host, Agent(agent));
  }
  if (!stopping) {
    spdlog::warn("host {} is given up: {}", host.value, evidence);
    Apply(AgentLost{host, evidence});
  }
}

void Driver::Perform(const StopAgent& effect, const std::string& /*reason*/) {
  const HostId host = effect.host;
  const auto it = agents_.find(host);
  if (it == agents_.end() || it->second.stopping) {
    return;
  }
  Agent& agent = it->second;
  agent.stopping = true;
  agent.start_again = false;
  loop_.Cancel(agent.stop_timer);
  v1::AgentOrder order;
  order.mutable_stop_agent();
  service_.Send(host, std::move(order));
  if (!agent.greeted) {
    // It has no workers. A remote shell may hang before it has started anything.
    if (agent.kind == AgentKind::kLocal) {
      starter_.EndInput(host);
    } else {
      starter_.Kill(host);
    }
  }
  const bool unreachable = agent.greeted && !agent.connected;
  agent.stop_timer = loop_.After(unreachable ? kUnreachablePatience : kStopPatience, [=, this] {
    starter_.EndInput(host);
    const Duration patience = unreachable ? Duration::zero() : kKillPatience;
    agents_.at(host).stop_timer = loop_.After(patience, [this, host] {
      if (starter_.Has(host)) {
        spdlog::error("host {}: its agent does not end and is killed", host.value);
        starter_.Kill(host);
      }
      Agent& late = agents_.at(host);
      if (late.kind != AgentKind::kLocal) {
        late.connected = false;
        service_.Forget(host);
        CheckAgentOver(host);
      }
    });
  });
  if (!agent.greeted && !starter_.Has(host)) {
    OnAgentOver(host, Agent(agent));
  }
}

}  // namespace muster::launcher
