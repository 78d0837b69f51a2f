// In place of launcher/agent/: what the agent has to do with processes, pages, sockets and threads.

#include <set>
#include <utility>

#include "launcher/agent/address_prober.h"
#include "launcher/agent/alive_watch.h"
#include "launcher/agent/driver_link.h"
#include "launcher/agent/output_forwarder.h"
#include "launcher/agent/page_server.h"
#include "launcher/agent/process_scan.h"
#include "launcher/agent/process_table.h"
#include "launcher/agent/segment_maker.h"
#include "launcher/agent/shared_page.h"
#include "launcher/agent/worker_service.h"
#include "test/sim/job/sim_worker.h"
#include "test/sim/job/site.h"
#include "test/sim/job/worker_port.h"

namespace muster::launcher {

using sim::Connection;
using sim::Flow;
using sim::kDriverMachine;
using sim::ProcessPtr;
using sim::SimWorker;
using sim::Site;
using sim::WorkerEnd;
using sim::WorkerPort;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// ---------------------------------------------------------------- the way to the driver

Result<std::shared_ptr<grpc::Channel>> MakeDriverChannel(const std::string&) {
  return std::shared_ptr<grpc::Channel>();
}
Result<std::shared_ptr<grpc::Channel>> MakeRemoteDriverChannel(const std::string&,
                                                               const std::string&) {
  return std::shared_ptr<grpc::Channel>();
}

class DriverLink::Stream {
 public:
  std::shared_ptr<Connection> connection;  // Shared with what is under way on it.
};

DriverLink::DriverLink(Loop& loop,
                       std::shared_ptr<grpc::Channel>,
                       const std::string&,
                       Callbacks callbacks)
    : stream_(std::make_unique<Stream>()) {
  Site& site = Site::Get();
  Connection::Client client;
  client.loop = &loop;
  client.order = callbacks.order;
  // By the codes that no further try can change; see driver_link.cc.
  client.broken = [broken = callbacks.broken](const grpc::Status& status) {
    static const std::set<grpc::StatusCode> kRefusals{grpc::StatusCode::UNAUTHENTICATED,
                                                      grpc::StatusCode::PERMISSION_DENIED,
                                                      grpc::StatusCode::NOT_FOUND,
                                                      grpc::StatusCode::FAILED_PRECONDITION};
    broken(status.ok() ? Status::Ok()
                       : Status(kRefusals.contains(status.error_code()) ? StatusCode::kInvalid
                                                                        : StatusCode::kUnavailable,
                                status.error_message()));
  };
  stream_->connection =
      std::make_shared<Connection>(site, site.universe.current()->address, std::move(client));
  site.connections.push_back(stream_->connection);
}

DriverLink::~DriverLink() {
  stream_->connection->Drop();
}

void DriverLink::Start(const v1::AgentHello& hello) {
  stream_->connection->Open();
  v1::AgentReport report;
  *report.mutable_hello() = hello;
  Send(std::move(report));
}

void DriverLink::Send(v1::AgentReport report) {
  stream_->connection->Send(std::move(report));
}

void DriverLink::Finish() {
  stream_->connection->HalfClose();
}

AddressProber::AddressProber(Loop& loop, std::vector<std::string> literals, Callbacks callbacks)
    : loop_(loop), literals_(std::move(literals)), callbacks_(std::move(callbacks)) {}

AddressProber::~AddressProber() {
  loop_.Cancel(timer_);
}

void AddressProber::Start() {
  Site& site = Site::Get();
  timer_ = loop_.After(site.universe.Between(microseconds(200), milliseconds(4)),
                       [this, own = site.universe.current()->address] {
                         Site& now = Site::Get();
                         if (now.driver && now.network.Connected(own, kDriverMachine)) {
                           timer_ = loop_.After(microseconds(100), [this] {
                             const Callbacks callbacks = callbacks_;  // One of them may end this.
                             callbacks.done("");
                           });
                           callbacks_.reached({literals_.empty() ? "" : literals_.front(), own});
                           return;
                         }
                         timer_ = loop_.After(now.driver ? kDeadline : Duration(milliseconds(1)),
                                              [this] {
                                                const Callbacks callbacks = callbacks_;
                                                callbacks.done("no answer");
                                              });
                       });
}

// ---------------------------------------------------------------- processes

class LocalProcessTable::Scanner {};

LocalProcessTable::LocalProcessTable(Loop& loop, std::string, Callbacks callbacks)
    : loop_(loop), callbacks_(std::move(callbacks)) {}
LocalProcessTable::~LocalProcessTable() = default;

Result<pid_t> LocalProcessTable::Start(Incarnation worker, SpawnOptions options) {
  Site& site = Site::Get();
  if (site.universe.Chance(site.program.fork_fails)) {
    site.fork_failed = true;
    return Status::Failed("fork: Resource temporarily unavailable");
  }
  const ProcessPtr agent = site.universe.current();
  SimWorker& started = SimWorker::Start(
      site, worker, std::move(options.environment), [this, agent, worker](ExitStatus status) {
        Site::Get().universe.In(agent, microseconds(50), [this, worker, status] {
          loop_.Post([this, worker, status] {
            entries_.erase(worker);
            callbacks_.exited(worker, status);
          });
        });
      });
  entries_[worker].pid = started.pid();
  loop_.After(site.universe.Between(microseconds(100), milliseconds(5)), [this, worker] {
    if (entries_.contains(worker)) {
      callbacks_.executed(worker, Status::Ok());
    }
  });
  return started.pid();
}

void LocalProcessTable::SignalGroup(Incarnation worker, int signal) {
  SignalProcess(worker, signal);
}

void LocalProcessTable::SignalProcess(Incarnation worker, int signal) {
  const auto it = entries_.find(worker);
  if (it != entries_.end()) {
    PageClient{it->second.pid, {}, {}}.Signal(signal);
  }
}

std::string ThreadStates(pid_t pid, std::initializer_list<pid_t>) {
  return ThreadStates(pid);
}
std::string ThreadStates(pid_t pid) {
  const SimWorker* worker = Site::Get().FindWorker(pid);
  return worker == nullptr ? "" : std::string(1, worker->state_letter());
}

// ---------------------------------------------------------------- pages

Result<std::shared_ptr<SharedPage>> SharedPage::Create() {
  return std::shared_ptr<SharedPage>(new SharedPage(UniqueFd(), new WorkerPage()));
}
SharedPage::~SharedPage() {
  delete page_;
}

// The first word of the mutex: an AliveState; the second: the owner.
uint32_t* SharedPage::word() const {
  return reinterpret_cast<uint32_t*>(&page_->alive);
}
AliveState SharedPage::state() const {
  return static_cast<AliveState>(*word());
}
pid_t SharedPage::owner() const {
  return static_cast<pid_t>(word()[1]);
}

class AliveWatch::Group {
 public:
  std::map<uint64_t, std::shared_ptr<SharedPage>> pages;  // Shared with the agent.
};

AliveWatch::AliveWatch(Ended ended, bool) : ended_(std::move(ended)), pages_per_thread_(1) {
  groups_.push_back(std::make_unique<Group>());
}

AliveWatch::~AliveWatch() {
  for (const auto& [key, page] : groups_.front()->pages) {
    Site::Get().watches.erase(page.get());
  }
}

void AliveWatch::Add(uint64_t key, std::shared_ptr<SharedPage> page) {
  groups_.front()->pages[key] = page;
  if (page->state() != AliveState::kHeld) {
    ended_(key, page->state());
  } else {
    Site::Get().watches[page.get()] = [this, key, page] { ended_(key, page->state()); };
  }
}

void AliveWatch::Remove(uint64_t key) {
  const auto it = groups_.front()->pages.find(key);
  if (it != groups_.front()->pages.end()) {
    Site::Get().watches.erase(it->second.get());
    groups_.front()->pages.erase(it);
  }
}

PageServer::PageServer(Loop& loop, Ask ask, AskSegment ask_segment)
    : loop_(loop), ask_(std::move(ask)), ask_segment_(std::move(ask_segment)) {}

PageServer::~PageServer() {
  std::erase_if(Site::Get().pages,
                [this](const auto& entry) { return entry.second.owner == this; });
}

Status PageServer::Start(const std::string& socket_path) {
  Site::Get().pages[socket_path] = {this, &loop_, ask_};
  return Status::Ok();
}

bool PageClient::HasEnded() const {
  return Site::Get().FindWorker(pid) == nullptr;
}
void PageClient::Signal(int signal) const {
  if (SimWorker* worker = Site::Get().FindWorker(pid)) {
    worker->Signal(signal);
  }
}
bool PageClient::TellOver(uint64_t generation, const std::string& reason) const {
  SimWorker* worker = Site::Get().FindWorker(pid);
  if (worker == nullptr || Site::Get().universe.Chance(2)) {
    return false;  // No descriptor was left for the connection.
  }
  worker->TellOver(generation, reason);
  return true;
}

// ---------------------------------------------------------------- shared memory: none is asked for

Result<UniqueFd> MakeSegment(size_t) {
  return Status::Failed("no memory is shared here");
}
SegmentMaker::SegmentMaker(Make make, Done done) : make_(std::move(make)), done_(std::move(done)) {}
SegmentMaker::~SegmentMaker() = default;
void SegmentMaker::Start(size_t, Urgency) {}
void SegmentMaker::Close(UniqueFd) {}

// ---------------------------------------------------------------- WorkerService

class WorkerService::Impl final : public WorkerPort {
 public:
  Impl(Loop& loop, Callbacks callbacks) : loop_(loop), callbacks_(std::move(callbacks)) {}
  ~Impl() override {
    Site::Get().ports.erase(path_);
    while (!streams_.empty()) {
      End(streams_.begin()->first, "Socket closed");
    }
  }

  void Listen(const std::string& path) {
    path_ = path;
    Site::Get().ports[path] = this;
  }

  uint64_t Connect(WorkerEnd end) override {
    Site& site = Site::Get();
    const std::string& here = end.process->address;
    const uint64_t id = ++last_;
    streams_[id] = {std::move(end),
                    std::make_shared<Flow>(site.universe, site.network, here, here),
                    std::make_shared<Flow>(site.universe, site.network, here, here)};
    return id;
  }

  void Report(uint64_t id, v1::WorkerReport report) override {
    const auto it = streams_.find(id);
    if (it != streams_.end()) {
      it->second.up->Push([this, alive = std::weak_ptr<bool>(alive_), id, report] {
        if (!alive.expired() && streams_.contains(id)) {
          loop_.Post([this, id, report] {
            if (streams_.contains(id)) {
              callbacks_.report({id}, report);
            }
          });
        }
      });
    }
  }

  void Close(uint64_t id) override {
    const auto it = streams_.find(id);
    if (it == streams_.end()) {
      return;
    }
    it->second.up->Push([this, alive = std::weak_ptr<bool>(alive_), id] {
      if (alive.expired()) {
        return;
      }
      loop_.Post([this, id] {
        if (streams_.contains(id)) {
          End(id, "the stream was closed");
          callbacks_.broken({id});
        }
      });
    });
  }

  void Send(uint64_t id, const v1::WorkerOrder& order) {
    const auto it = streams_.find(id);
    if (it != streams_.end()) {
      it->second.down->Push([end = it->second.end, order] {
        Site::Get().universe.In(end.process, Duration::zero(), [end, order] { end.order(order); });
      });
    }
  }

  void End(uint64_t id, const std::string& reason) {
    const auto it = streams_.find(id);
    if (it != streams_.end()) {
      it->second.down->Push([end = it->second.end, reason] {
        Site::Get().universe.In(
            end.process, Duration::zero(), [end, reason] { end.ended(reason); });
      });
      streams_.erase(it);
    }
  }

 private:
  struct Open {
    WorkerEnd end;
    std::shared_ptr<Flow> up;  // Shared with what is under way.
    std::shared_ptr<Flow> down;
  };

  Loop& loop_;
  const Callbacks callbacks_;
  std::string path_;
  uint64_t last_ = 0;
  std::map<uint64_t, Open> streams_;
  // shared_ptr: what is under way sees that this object is gone.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

WorkerService::WorkerService(Loop& loop, Callbacks callbacks)
    : impl_(std::make_unique<Impl>(loop, std::move(callbacks))) {}
WorkerService::~WorkerService() = default;

Status WorkerService::Start(const std::string& socket_path) {
  impl_->Listen(socket_path);
  return Status::Ok();
}
void WorkerService::Send(StreamId stream, v1::WorkerOrder order) {
  impl_->Send(stream.value, order);
}
void WorkerService::Finish(StreamId stream, const grpc::Status& status) {
  impl_->End(stream.value, status.error_message());
}
void WorkerService::Stop() {}

// ---------------------------------------------------------------- OutputForwarder: all is quiet

class OutputForwarder::Stream {};
OutputForwarder::OutputForwarder(Options options) : options_(std::move(options)) {}
OutputForwarder::~OutputForwarder() = default;
void OutputForwarder::Connect(std::shared_ptr<grpc::Channel>) {}
void OutputForwarder::Add(const OutputOrigin&, UniqueFd, UniqueFd) {}
void OutputForwarder::SetRanks(const std::vector<std::pair<Incarnation, int32_t>>&) {}
void OutputForwarder::Flush(Duration, std::function<void()> done) {
  sim::Universe& universe = Site::Get().universe;
  universe.In(universe.current(), milliseconds(1), std::move(done));
}

}  // namespace muster::launcher
