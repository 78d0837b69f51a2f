#include "launcher/driver/driver.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>
#include <variant>

#include "common/log.h"
#include "common/process.h"
#include "common/secret.h"
#include "common/version.h"
#include "discovery/fixed_host_source.h"
#include "discovery/hostfile_host_source.h"
#include "discovery/script_host_source.h"
#include "launcher/driver/convert.h"
#include "launcher/incident/incident_text.h"

namespace muster::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kTick = milliseconds(250);
// A tick this late means that the driver itself was stopped: nobody else is to blame.
constexpr Duration kStoppedAfter = seconds(1);
constexpr Duration kOutputDrain = seconds(2);
constexpr Duration kRecordDrain = seconds(2);
constexpr int kExitCannotStart = 2;

std::string FromEnvironment(const char* name) {
  const char* value = ::getenv(name);  // NOLINT(concurrency-mt-unsafe): before any thread.
  return value == nullptr ? "" : value;
}

OutputWriter::Options MakeOutputOptions(const RunOptions& options) {
  OutputWriter::Options output;
  output.directory = options.output_filename;
  output.timestamp = options.prefix_timestamp;
  output.rank_count_max = options.membership.np_max.value_or(options.membership.np_start);
  return output;
}

}  // namespace

Driver::Driver(RunOptions options, std::string secret)
    : options_(std::move(options)),
      job_id_(RandomHex(8)),
      secret_(std::move(secret)),
      trace_(FromEnvironment("MUSTER_TRACE")),
      output_(MakeOutputOptions(options_)),
      service_(loop_, *this, output_, secret_),
      starter_(loop_,
               options_.remote_shell,
               options_.membership.start_timeout,
               {[this](const HostId& host, AgentStarter::Place place) {
                  return MakeBootstrap(host, place);
                },
                [this](const HostId& host, const AgentStarter::Ended& ended) {
                  OnAgentProcessEnded(host, ended);
                },
                [this](const HostId& host, const std::string& message) {
                  OnAgentNotStarted(host, message, false);
                }}),
      membership_(options_.membership),
      incidents_(loop_.Now()),
      record_(options_.incident_directory),
      signals_(loop_),
      sweeper_(loop_, job_id_) {}

Driver::~Driver() = default;

int Driver::Run() {
  for (const std::string& warning : options_.warnings) {
    spdlog::warn("{}", warning);
  }
  for (const Setting& setting : options_.settings) {
    spdlog::info("{} = {} ({})", setting.flag, setting.value, setting.origin);
  }
  if (const Status started = Start(); !started.ok()) {
    WriteLastLine("muster: " + started.message());
    return kExitCannotStart;
  }
  loop_.Run();
  if (poller_ != nullptr) {
    poller_->Stop();
  }
  // Output first: a stream that waits for a blocked terminal ends only when the writer gives up.
  output_.Finish(kOutputDrain);
  service_.Shutdown();
  sweeper_.Stop();
  record_.Finish(kRecordDrain);
  if (exit_code_ != 0) {
    WriteLastLine("muster: " + cause_);
  }
  return exit_code_;
}

Status Driver::Start() {
  if (Status watched = signals_.Watch([this](int signal) { OnSignal(signal); }); !watched.ok()) {
    return watched;
  }
  if (Status output = output_.Start(); !output.ok()) {
    return output;
  }
  if (Status listening = service_.Start(options_.network.ports, options_.network.family);
      !listening.ok()) {
    return listening;
  }
  if (Status network = PrepareNetwork(); !network.ok()) {
    return network;
  }
  StartRecord();
  last_tick_ = loop_.Now();
  loop_.After(kTick, [this] { OnTick(); });
  return StartDiscovery();
}

void Driver::StartRecord() {
  JobRecord job;
  job.id = job_id_;
  for (const std::string& word : options_.command) {
    job.command += (job.command.empty() ? "" : " ") + word;
  }
  job.version = kVersion;
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  job.host = host.data();
  job.pid = ::getpid();
  job.started_ms =
      std::chrono::duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  job.elastic = options_.membership.elastic;
  record_.Start(job);
}

void Driver::Keep(std::vector<Incident> incidents) {
  for (Incident& incident : incidents) {
    spdlog::info("incident {}: {}", incident.number, Headline(incident));
    record_.Write(std::move(incident));
  }
}

Status Driver::StartDiscovery() {
  if (!options_.script.empty()) {
    source_ = std::make_unique<discovery::ScriptHostSource>(
        options_.script, options_.slots_per_host, options_.discovery_timeout);
  } else if (options_.accept_agents_port) {
    auto source = std::make_unique<discovery::AgentHostSource>();
    dialled_in_ = source.get();
    source_ = std::move(source);
  } else if (!options_.hostfile.empty()) {
    source_ =
        std::make_unique<discovery::HostfileHostSource>(options_.hostfile, options_.slots_per_host);
  } else {
    source_ = std::make_unique<discovery::FixedHostSource>(options_.hosts);
  }
  poller_ = std::make_unique<discovery::DiscoveryPoller>(
      *source_, options_.discovery_interval, [this](Result<discovery::HostList> polled) {
        loop_.Post([this, polled = std::move(polled)] { OnPoll(polled); });
      });
  poller_->Start();
  return Status::Ok();
}

void Driver::OnSignal(int signal) {
  if (signal != SIGUSR1 && signal != SIGUSR2) {
    Apply(StopRequested{signal});
    return;
  }
  v1::AgentOrder order;
  order.mutable_signal_workers()->set_signal(signal);
  for (const auto& [host, agent] : agents_) {
    service_.Send(host, order);
  }
}

void Driver::WarnOnce(const std::string& message) {
  if (warned_.insert(message).second) {
    spdlog::warn("{}", message);
  }
}

void Driver::OnPoll(const Result<discovery::HostList>& polled) {
  if (finishing_) {
    return;
  }
  if (!polled.ok()) {
    Apply(DiscoveryFailed{polled.status().message()});
    return;
  }
  for (const std::string& warning : polled.value().warnings) {
    WarnOnce(warning);
  }
  HostsDiscovered event;
  uint32_t total = 0;
  for (const discovery::ListedHost& listed : polled.value().hosts) {
    event.hosts.push_back({listed.host, listed.slots});
    total += listed.slots;
  }
  if (!last_list_ || last_list_->hosts != polled.value().hosts) {
    nlohmann::json hosts = nlohmann::json::object();
    for (const HostSlots& host : event.hosts) {
      hosts[host.host.value] = host.slots;
    }
    trace_.Write("discovered", {{"hosts", std::move(hosts)}});
    last_list_ = polled.value();
  }
  if (!options_.membership.elastic && total < options_.membership.np_start) {
    const std::string cause =
        DescribeSlotShortage(polled.value().hosts, options_.membership.np_start, options_.command);
    Keep(incidents_.End(2, cause, loop_.Now()));
    Finish(2, cause);
    return;
  }
  Apply(event);
}

void Driver::OnTick() {
  const Instant now = loop_.Now();
  const bool was_stopped = now - last_tick_ > kTick + kStoppedAfter;
  last_tick_ = now;
  if (was_stopped) {
    // A driver that was itself stopped (SIGSTOP) finds everybody silent, so it counts anew.
    for (auto& [host, agent] : agents_) {
      agent.last_heard = now;
    }
  }
  SuspectSilentAgents(now);
  EndLeases();
  EndStuckAgents(now);
  loop_.After(kTick, [this] { OnTick(); });
}

void Driver::ApplyLater(Event event) {
  loop_.Post([this, event = std::move(event)] { Apply(event); });
}

void Driver::Apply(const Event& event) {
  if (finishing_) {
    return;
  }
  const Instant now = loop_.Now();
  const Transition transition = membership_.Step(event, now);
  // Before the effects, which may lead to the next step; written after them, for they are urgent.
  std::vector<Incident> incidents = incidents_.Observe(event, transition, membership_, now);
  const bool changed =
      std::any_of(transition.effects.begin(), transition.effects.end(), [](const Effect& effect) {
        const FormWorld* form = std::get_if<FormWorld>(&effect);
        return form != nullptr && form->generation.value > 1;
      });
  if (!transition.reason.empty()) {
    // Who was lost and how many go on is worth a line to every user; the rest is for --verbose.
    spdlog::log(changed ? spdlog::level::warn : spdlog::level::info, "{}", transition.reason);
  }
  for (const Effect& effect : transition.effects) {
    std::visit([&](const auto& concrete) { Perform(concrete, transition.reason); }, effect);
  }
  Keep(std::move(incidents));
}

void Driver::Finish(int code, const std::string& cause) {
  finishing_ = true;
  exit_code_ = code;
  cause_ = cause;
  trace_.Write("finish", {{"code", code}, {"cause", cause}});
  std::vector<HostId> hosts;
  for (const auto& [host, agent] : agents_) {
    hosts.push_back(host);
  }
  for (const HostId& host : hosts) {
    Perform(StopAgent{host}, cause);
  }
  StopIfAllAgentsAreOver();
}

void Driver::StopIfAllAgentsAreOver() {
  if (finishing_ && agents_.empty()) {
    loop_.Stop();
  }
}

}  // namespace muster::launcher
