// The part of Driver that starts agents, hears them, and notices their end.

#include <signal.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "common/log.h"
#include "common/process.h"
#include "common/version.h"
#include "launcher/agent/process_scan.h"
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
constexpr Duration kSweepPatience = seconds(4);

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

}  // namespace

v1::Welcome Driver::MakeWelcome() const {
  v1::Welcome welcome;
  for (const std::string& word : options_.command) {
    welcome.add_argv(word);
  }
  auto& environment = *welcome.mutable_environment();
  for (const std::string& entry : CurrentEnvironment()) {
    const size_t equals = entry.find('=');
    if (equals != std::string::npos && Travels(entry)) {
      environment[entry.substr(0, equals)] = entry.substr(equals + 1);
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
  return welcome;
}

void Driver::LaunchAgent(const HostId& host) {
  if (!IsLocalHost(host)) {
    AgentStartFailedWith(host,
                         "it is not this machine, and this version starts workers on this machine "
                         "only; list localhost, 127.0.0.1, 127.0.0.2 ...");
    return;
  }
  v1::AgentBootstrap bootstrap;
  bootstrap.set_host(host.value);
  bootstrap.set_job_id(job_id_);
  bootstrap.set_secret(secret_);
  bootstrap.add_driver()->set_literal(service_.address());
  bootstrap.set_log_level(options_.log_level);
  bootstrap.set_protocol(kProtocolVersion);
  Result<LaunchedAgent> launched = launcher_.Start(bootstrap);
  if (!launched.ok()) {
    AgentStartFailedWith(host, launched.status().message());
    return;
  }
  Agent& agent = agents_[host];
  agent = Agent{};
  agent.launched = std::move(launched).value();
  loop_.Watch(agent.launched.process.pidfd.get(), EPOLLIN, [this, host](uint32_t) {
    OnAgentProcessEnded(host);
  });
  agent.start_timer = loop_.After(options_.membership.start_timeout, [this, host] {
    spdlog::warn("the agent of host {} has not attached within --start-timeout", host.value);
    agents_.at(host).launched.lifeline.Reset();
    ::kill(-agents_.at(host).launched.process.pid, SIGKILL);
  });
}

void Driver::AgentStartFailedWith(const HostId& host, const std::string& message) {
  spdlog::warn("host {}: no agent could be started: {}", host.value, message);
  ApplyLater(AgentStartFailed{host, message, false});
}

bool Driver::OnAgentAttached(const HostId& host, const v1::AgentHello& /*hello*/) {
  const auto it = agents_.find(host);
  if (it == agents_.end() || it->second.attached || it->second.process_ended) {
    return false;
  }
  it->second.attached = true;
  it->second.last_summary = loop_.Now();
  loop_.Cancel(it->second.start_timer);
  v1::AgentOrder order;
  *order.mutable_welcome() = MakeWelcome();
  service_.Send(host, order);
  if (it->second.stopping) {
    v1::AgentOrder stop;
    stop.mutable_stop_agent();
    service_.Send(host, stop);
    return true;
  }
  ApplyLater(AgentAttached{host});
  return true;
}

void Driver::OnAgentReport(const HostId& host, const v1::AgentReport& report) {
  const auto it = agents_.find(host);
  if (it == agents_.end()) {
    return;
  }
  Agent& agent = it->second;
  agent.last_summary = loop_.Now();
  if (agent.suspected) {
    agent.suspected = false;
    ApplyLater(AgentReattached{host});
  }
  if (report.has_summary()) {
    v1::AgentOrder order;
    order.mutable_summary_ack()->set_sequence(report.summary().sequence());
    service_.Send(host, order);
    return;
  }
  const std::optional<Incarnation> subject = SubjectOf(report);
  if (subject && refused_.contains(*subject) && !report.has_worker_exited()) {
    return;
  }
  if (report.has_worker_exited() && subject) {
    trace_.Write("reaped",
                 {{"host", host.value},
                  {"incarnation", subject->value},
                  {"code", report.worker_exited().code()},
                  {"signal", report.worker_exited().signal()}});
    workers_.erase(*subject);
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
  it->second.attached = false;
  if (!it->second.stopping) {
    spdlog::info("host {}: {}", host.value, why);
  }
  CheckAgentOver(host);
}

void Driver::OnAgentProcessEnded(const HostId& host) {
  Agent& agent = agents_.at(host);
  loop_.Unwatch(agent.launched.process.pidfd.get());
  if (const Result<ExitStatus> reaped = Reap(agent.launched.process.pid); reaped.ok()) {
    agent.exit = reaped.value();
  }
  agent.process_ended = true;
  // Whatever is left of it (the agent proper, if its reaper was killed) sees the lifeline end.
  agent.launched.lifeline.Reset();
  loop_.Cancel(agent.start_timer);
  CheckAgentOver(host);
}

// An agent is over when its process has ended and its stream is closed: only then are its workers
// surely gone, because each of its two processes outlives them.
void Driver::CheckAgentOver(const HostId& host) {
  const auto it = agents_.find(host);
  if (it == agents_.end() || !it->second.process_ended || it->second.attached) {
    return;
  }
  const Agent agent = std::move(it->second);
  loop_.Cancel(agent.stop_timer);
  agents_.erase(it);
  std::erase_if(workers_, [&](const auto& entry) { return entry.second.host == host; });
  if (!agent.stopping) {
    const std::string how = agent.exit.signal != 0
                                ? "was killed by signal " + std::to_string(agent.exit.signal)
                                : "exited with code " + std::to_string(agent.exit.code);
    const bool had_attached = agent.last_summary != Instant();
    if (had_attached) {
      SweepHost(host, "its agent " + how);
    } else {
      AgentStartFailedWith(host, "its agent " + how + " before it attached");
    }
  }
  if (agent.start_again && !finishing_) {
    LaunchAgent(host);
  }
  StopIfAllAgentsAreOver();
}

// If both processes of the agent were killed at once, nobody has ended what its workers had forked
// away, so that is done here before the host's slots are used again. It reads all of /proc, hence
// not on the loop thread.
void Driver::SweepHost(const HostId& host, const std::string& evidence) {
  sweepers_.emplace_back([this, host, evidence] {
    if (!Sweep({job_id_, host.value, false}, kSweepPatience)) {
      spdlog::error("host {}: processes of the lost agent's workers are still there", host.value);
    }
    loop_.Post([this, host, evidence] { Apply(AgentLost{host, evidence}); });
  });
}

void Driver::Perform(const StartAgent& effect, const std::string& /*reason*/) {
  const auto it = agents_.find(effect.host);
  if (it != agents_.end()) {
    it->second.start_again = true;  // The old one is still ending.
    return;
  }
  LaunchAgent(effect.host);
}

void Driver::Perform(const StopAgent& effect, const std::string& /*reason*/) {
  const auto it = agents_.find(effect.host);
  if (it == agents_.end() || it->second.stopping) {
    return;
  }
  it->second.stopping = true;
  it->second.start_again = false;
  v1::AgentOrder order;
  order.mutable_stop_agent();
  service_.Send(effect.host, order);
  const HostId host = effect.host;
  it->second.stop_timer = loop_.After(kStopPatience, [this, host] {
    Agent& agent = agents_.at(host);
    agent.launched.lifeline.Reset();
    agent.stop_timer = loop_.After(kKillPatience, [this, host] {
      spdlog::error("host {}: its agent does not end and is killed", host.value);
      ::kill(-agents_.at(host).launched.process.pid, SIGKILL);
    });
  });
}

}  // namespace muster::launcher
