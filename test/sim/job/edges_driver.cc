// In place of launcher/driver/, launcher/incident/ and discovery/: what the driver has to do with
// other processes, sockets, threads and files.

#include <utility>

#include "discovery/discovery_poller.h"
#include "launcher/driver/agent_starter.h"
#include "launcher/driver/host_sweeper.h"
#include "launcher/driver/job_signals.h"
#include "launcher/driver/output_writer.h"
#include "launcher/driver/rendezvous_service.h"
#include "launcher/incident/incident_writer.h"
#include "test/sim/job/machine.h"
#include "test/sim/job/site.h"

// ---------------------------------------------------------------- discovery

namespace muster::discovery {

DiscoveryPoller::DiscoveryPoller(HostSource& source, Duration interval, Callback callback)
    : source_(source), interval_(interval), callback_(std::move(callback)) {}

DiscoveryPoller::~DiscoveryPoller() = default;

namespace {

void Poll(const DiscoveryPoller::Callback& callback, Duration interval) {
  sim::Site& site = sim::Site::Get();
  site.universe.In(site.driver_process,
                   site.universe.Chance(5) ? 3 * interval : interval,  // A slow script.
                   [callback, interval] {
                     callback(sim::Site::Get().poll());
                     Poll(callback, interval);
                   });
}

}  // namespace

void DiscoveryPoller::Start() {
  sim::Site& site = sim::Site::Get();
  site.universe.In(site.driver_process, std::chrono::milliseconds(5), [this] {
    callback_(sim::Site::Get().poll());
    Poll(callback_, interval_);
  });
}

void DiscoveryPoller::Stop() {}

}  // namespace muster::discovery

namespace muster::launcher {

using sim::Machine;
using sim::Site;
using std::chrono::milliseconds;

// ---------------------------------------------------------------- AgentStarter

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

AgentStarter::~AgentStarter() = default;

void AgentStarter::Start(const HostId& host) {
  MUSTER_CHECK(!Has(host), "host " + host.value + " has an agent already");
  const uint64_t number = ++last_number_;
  agents_[host].number = number;
  const Duration look_up = Site::Get().universe.Between(milliseconds(1), milliseconds(50));
  loop_.After(look_up, [this, host, number] {
    if (IsWaiting(host, number)) {
      const Machine* machine = Site::Get().Find(host);
      StartProcess(host, machine != nullptr && machine->local() ? Place::kLocal : Place::kRemote);
    }
  });
}

bool AgentStarter::IsWaiting(const HostId& host, uint64_t number) const {
  const auto it = agents_.find(host);
  return it != agents_.end() && it->second.number == number && it->second.process == nullptr &&
         it->second.withdrawal.value == 0;
}

void AgentStarter::StartProcess(const HostId& host, Place place) {
  Result<v1::AgentBootstrap> bootstrap = callbacks_.bootstrap(host, place);
  if (agents_.at(host).withdrawal.value != 0) {
    return;
  }
  Machine* machine = Site::Get().Find(host);
  if (!bootstrap.ok() || machine == nullptr) {
    Fail(host, bootstrap.ok() ? "no such host" : bootstrap.status().message());
    return;
  }
  auto process = std::make_unique<Process>();
  process->place = place;
  process->start_timer = loop_.After(start_timeout_, [this, host] { OnLate(host); });
  Agent& agent = agents_.at(host);
  agent.process = std::move(process);
  bootstrap.value().set_remote(place == Place::kRemote);
  machine->StartAgent(bootstrap.value(),
                      {start_timeout_, [this, host, number = agent.number](int code, bool swept) {
                         if (!Site::Get().driver) {
                           return;
                         }
                         loop_.Post([this, host, number, code, swept] {
                           const auto it = agents_.find(host);
                           if (it == agents_.end() || it->second.number != number) {
                             return;
                           }
                           Process& ending = *it->second.process;
                           ending.said_farewell = swept && ending.place == Place::kRemote;
                           ending.spawned.pid = code;  // Kept there until it is told.
                           OnProcessEnded(host);
                         });
                       }});
}

void AgentStarter::OnProcessEnded(const HostId& host) {
  Process& process = *agents_.at(host).process;
  Ended ended;
  ended.place = process.place;
  ended.farewell = process.said_farewell;
  ended.late = process.late;
  const int code = process.spawned.pid;
  ended.exit = {code, code > 128 && code < 255 ? code - 128 : 0};
  loop_.Cancel(process.start_timer);
  agents_.erase(host);
  callbacks_.ended(host, ended);
}

void AgentStarter::Fail(const HostId& host, const std::string& message) {
  agents_.erase(host);
  callbacks_.failed(host, message);
}

void AgentStarter::Attached(const HostId& host) {
  const auto it = agents_.find(host);
  if (it != agents_.end() && it->second.process != nullptr) {
    it->second.process->attached = true;
    loop_.Cancel(it->second.process->start_timer);
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
    Site::Get().universe.At(milliseconds(1), [host] { Site::Get().Find(host)->EndInput(); });
  }
}

void AgentStarter::Kill(const HostId& host) {
  const auto it = agents_.find(host);
  if (it != agents_.end() && it->second.process != nullptr) {
    Site::Get().universe.At(milliseconds(1), [host] { Site::Get().Find(host)->KillStarted(); });
  } else {
    EndInput(host);
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

std::string AgentStarter::Describe(const Ended& ended) {
  return (ended.place == Place::kRemote ? "its remote shell ended with "
                                        : "its agent ended with ") +
         std::to_string(ended.exit.code);
}

// ---------------------------------------------------------------- RendezvousService

class RendezvousService::Service {};

RendezvousService::RendezvousService(Loop& loop,
                                     AgentListener& listener,
                                     OutputWriter& output,
                                     std::string secret)
    : loop_(loop),
      output_(output),
      secret_(std::move(secret)),
      sessions_(loop, listener, [](const std::string&) {}) {
  Site& site = Site::Get();
  site.driver = {site.driver_process, &loop, &sessions_};
}

RendezvousService::~RendezvousService() {
  Shutdown();
}

Status RendezvousService::Start(PortRange, AddressFamily) {
  sessions_.Open();
  address_ = "127.0.0.1:4000";
  return Status::Ok();
}

Status RendezvousService::StartRoutable(const std::vector<std::string>& literals, PortRange) {
  for (const std::string& literal : literals) {
    routable_.push_back(literal + ":4001");
  }
  return Status::Ok();
}

void RendezvousService::Shutdown() {
  sessions_.Close();
  Site::Get().LoseDriver();
}

// ---------------------------------------------------------------- the small ones

HostSweeper::HostSweeper(Loop& loop, std::string job) : loop_(loop), job_(std::move(job)) {}
HostSweeper::~HostSweeper() = default;

// With the agent and the reaper of a local host its workers have died; see Machine.
void HostSweeper::Start(const HostId& host, std::function<void()> done) {
  Site::Get().Find(host)->WhenWorkersGone([this, done = std::move(done)] {
    if (Site::Get().driver) {
      loop_.Post(done);
    }
  });
}
void HostSweeper::Stop() {}

JobSignals::JobSignals(Loop& loop) : loop_(loop) {}
JobSignals::~JobSignals() {
  Site::Get().signal_driver = nullptr;
}

Status JobSignals::Watch(std::function<void(int signal)> callback) {
  callback_ = std::move(callback);
  Site::Get().signal_driver = [this](int signal) {
    loop_.Post([this, signal] { callback_(signal); });
  };
  return Status::Ok();
}

OutputWriter::OutputWriter(Options options)
    : options_(std::move(options)), stdout_(options_.stdout_fd), stderr_(options_.stderr_fd) {}
OutputWriter::~OutputWriter() = default;
Status OutputWriter::Start() {
  return Status::Ok();
}
void OutputWriter::Finish(Duration) {}

void WriteLastLine(std::string line, int) {
  Site::Get().universe.Note(line);
}

struct IncidentWriter::Work {};
IncidentWriter::IncidentWriter(std::string, Open) {}
IncidentWriter::~IncidentWriter() = default;
void IncidentWriter::Start(const JobRecord&) {}
void IncidentWriter::Write(Incident incident) {
  Site::Get().incidents.push_back(std::move(incident));
}
void IncidentWriter::Finish(Duration) {}

}  // namespace muster::launcher
