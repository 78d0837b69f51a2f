#include "launcher/agent/agent.h"

#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <utility>

#include "common/address.h"
#include "common/log.h"
#include "common/secret.h"
#include "common/version.h"
#include "common/worker_page.h"
#include "launcher/agent/worker_environment.h"
#include "launcher/agent/world_placement.h"

namespace muster::launcher {
namespace {

constexpr Duration kSummaryInterval = std::chrono::milliseconds(200);
constexpr Duration kStopDeadline = std::chrono::seconds(2);
constexpr Duration kFlushDeadline = std::chrono::seconds(2);
constexpr Duration kFarewellDeadline = std::chrono::seconds(1);
constexpr size_t kKeyBytes = sizeof(PageRequest::key) / 2;

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace

Agent::Agent(Loop& loop, AgentOptions options, DriverSession::Options driver, Callbacks callbacks)
    : loop_(loop),
      options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      processes_(loop,
                 options_.job,
                 {[this](Incarnation id, const Status& status) { OnExecuted(id, status); },
                  [this](Incarnation id, ExitStatus status) { OnExited(id, status); }}),
      pages_(
          loop,
          [this](Incarnation id, std::string_view key, PageClient client) {
            return OnPageAsked(id, key, std::move(client));
          },
          [this](const SegmentAsk& ask, PageServer::SegmentReply reply) {
            OnSegmentAsked(ask, std::move(reply));
          }),
      segments_(loop),
      service_(loop,
               {[this](StreamId stream, const v1::WorkerReport& report) {
                  OnWorkerReport(stream, report);
                },
                [this](StreamId stream) { OnStreamBroken(stream); }}),
      driver_(loop,
              driver,
              {[this](const v1::AgentOrder& order) { OnOrder(order); },
               callbacks_.leased,
               [this](std::shared_ptr<grpc::Channel> channel) { OnConnected(std::move(channel)); },
               [this](const Status& status) { OnSessionEnded(status); }}),
      output_({driver.secret, driver_.id(), options_.host, driver.remote}),
      watch_([this, alive = std::weak_ptr<bool>(alive_)](uint64_t key, AliveState state) {
        loop_.Post([this, alive, key, state] {
          if (!alive.expired()) {
            OnAliveEnded({key}, state);
          }
        });
      }) {}

Agent::~Agent() = default;

Status Agent::Start() {
  if (Status status = pages_.Start(options_.directory + "/" + kPageSocketName); !status.ok()) {
    return status;
  }
  if (Status status = service_.Start(options_.directory + "/" + kGrpcSocketName); !status.ok()) {
    return status;
  }
  v1::AgentHello hello;
  hello.set_host(options_.host);
  hello.set_protocol(kProtocolVersion);
  hello.set_pid(static_cast<uint64_t>(::getpid()));
  hello.set_boot_id(BootId());
  hello.set_slots(options_.slots);
  hello.set_start(options_.start);
  driver_.Start(std::move(hello));
  After(kSummaryInterval, [this] { SendSummary(); });
  return Status::Ok();
}

void Agent::RequestDrain() {
  if (!welcomed_) {
    callbacks_.finished();  // No driver knows of it yet.
  } else if (!std::exchange(drain_requested_, true)) {
    v1::AgentReport report;
    report.mutable_drain_requested();
    driver_.Send(std::move(report));
  }
}

// ---------------------------------------------------------------- orders

void Agent::OnOrder(const v1::AgentOrder& order) {
  switch (order.order_case()) {
    case v1::AgentOrder::kWelcome:
      return Perform(order.welcome());
    case v1::AgentOrder::kSpawnWorker:
      return Perform(order.spawn_worker());
    case v1::AgentOrder::kKillWorker:
      return Perform(order.kill_worker());
    case v1::AgentOrder::kAskSuspects:
      return Perform(order.ask_suspects());
    case v1::AgentOrder::kRefuse:
      return Perform(order.refuse());
    case v1::AgentOrder::kDrain:
      return Perform(order.drain());
    case v1::AgentOrder::kFormWorld:
      return Perform(order.form_world());
    case v1::AgentOrder::kRevoke:
      return Perform(order.revoke());
    case v1::AgentOrder::kNotifyPending:
      return Perform(order.notify_pending());
    case v1::AgentOrder::kRelease:
      return Perform(order.release());
    case v1::AgentOrder::kAdmit:
      return Perform(order.admit());
    case v1::AgentOrder::kStopAgent:
      return Perform(order.stop_agent());
    case v1::AgentOrder::kSignalWorkers:
      return Perform(order.signal_workers());
    case v1::AgentOrder::kOpenListeners:
      return Perform(order.open_listeners());
    case v1::AgentOrder::kSummaryAck:
    case v1::AgentOrder::kResumed:
      return;  // The session's own.
    case v1::AgentOrder::ORDER_NOT_SET:
      spdlog::error("the driver sent an order that this agent does not know");
      return;
  }
}

void Agent::Perform(const v1::Welcome& welcome) {
  welcome_ = welcome;
  welcomed_ = true;
  driver_.SetGrace(std::chrono::milliseconds(welcome.driver_grace_ms()));
  for (const v1::Address& address : welcome.listen()) {
    listen_.push_back(address.literal());
  }
  if (!driver_.own_address().empty()) {
    listen_ = {JoinAddress(driver_.own_address(), 0)};
  }
}

void Agent::Perform(const v1::SpawnWorker& order) {
  const Incarnation id{order.incarnation()};
  const std::string key = RandomHex(kKeyBytes);
  const Result<pid_t> pid = StartProcess(order, key);
  if (!pid.ok()) {
    ReportSpawnFailed(id, pid.status());
    return;
  }
  Worker& worker = workers_[id];
  worker.slot = order.slot();
  worker.key = key;
  worker.newcomer = IsNewcomer(order);
  worker.pid = pid.value();
}

Result<pid_t> Agent::StartProcess(const v1::SpawnWorker& order, const std::string& key) {
  const Incarnation id{order.incarnation()};
  if (!welcomed_ || welcome_.argv().empty() || stopping_ || workers_.contains(id)) {
    return Status::Invalid(stopping_ ? "the agent is ending" : "the order to spawn came too early");
  }
  Result<Pipe> out = MakePipe();
  Result<Pipe> err = MakePipe();
  if (!out.ok() || !err.ok()) {
    return out.ok() ? err.status() : out.status();
  }
  SpawnOptions spawn;
  spawn.argv.assign(welcome_.argv().begin(), welcome_.argv().end());
  spawn.environment = WorkerEnvironment(
      welcome_,
      {options_.host, options_.job, options_.directory, key, id, order.slot(), listen_},
      order.provisional());
  spawn.directory = welcome_.directory();
  spawn.stdout_fd = out.value().write.get();
  spawn.stderr_fd = err.value().write.get();
  const auto cores = welcome_.environment().find(kEnvCoreDumps);
  spawn.limit_core_dump = cores == welcome_.environment().end() || cores->second != "1";
  Result<pid_t> pid = processes_.Start(id, std::move(spawn));
  if (pid.ok()) {
    // A rank that a newcomer may never have must not stand before its lines.
    const int32_t rank = IsNewcomer(order) ? -1 : static_cast<int32_t>(order.provisional().rank());
    output_.Add({id, order.slot(), rank}, std::move(out.value().read), std::move(err.value().read));
  }
  return pid;
}

void Agent::Perform(const v1::KillWorker& order) {
  if (Worker* worker = Find({order.incarnation()})) {
    worker->kill_ordered = true;
  }
  processes_.SignalGroup({order.incarnation()}, order.force() ? SIGKILL : SIGTERM);
}

void Agent::Perform(const v1::AskSuspects& order) {
  for (const uint64_t incarnation : order.incarnations()) {
    v1::AgentReport report;
    v1::SuspectAnswered& answer = *report.mutable_suspect_answered();
    answer.set_incarnation(incarnation);
    answer.set_generation(order.generation());
    answer.set_alive(IsAlive({incarnation}));
    driver_.Send(std::move(report));
  }
}

void Agent::Perform(const v1::Refuse& order) {
  Worker* worker = Find({order.incarnation()});
  if (worker == nullptr) {
    return;  // It has exited: its key opens nothing any more.
  }
  spdlog::info("worker #{} is refused: {}", order.incarnation(), order.reason());
  worker->refused = true;
  v1::WorkerOrder refused;
  refused.mutable_refused()->set_reason(order.reason());
  Tell({order.incarnation()}, std::move(refused));
}

void Agent::Perform(const v1::Drain& order) {
  for (const uint64_t incarnation : order.incarnations()) {
    v1::WorkerOrder draining;
    draining.mutable_draining();
    Tell({incarnation}, std::move(draining));
  }
}

void Agent::Perform(const v1::FormWorld& order) {
  const Result<std::vector<v1::Placement>> placements =
      PlacementsOfHost(order.layout(), order.host_index());
  if (!placements.ok() || placements.value().size() != static_cast<size_t>(order.members_size())) {
    spdlog::error(
        "world g{} cannot be formed here: {}",
        order.generation(),
        placements.ok() ? "its layout does not fit its members" : placements.status().message());
    return;
  }
  world_formed_ = true;
  segments_.Order(order.generation(), placements.value().size());
  std::vector<std::pair<Incarnation, int32_t>> ranks;
  for (int i = 0; i < order.members_size(); ++i) {
    const v1::Placement& placement = placements.value()[static_cast<size_t>(i)];
    ranks.emplace_back(Incarnation{order.members(i)}, static_cast<int32_t>(placement.rank()));
  }
  output_.SetRanks(ranks);  // Before a worker can print anything in its new rank.
  for (int i = 0; i < order.members_size(); ++i) {
    TellWorld({order.members(i)}, order, placements.value()[static_cast<size_t>(i)]);
  }
}

void Agent::TellWorld(Incarnation id, const v1::FormWorld& order, const v1::Placement& placement) {
  Worker* worker = Find(id);
  if (worker == nullptr || worker->refused) {
    return;  // Its loss is on the way to the driver already.
  }
  worker->generation = order.generation();
  worker->rank = placement.rank();
  worker->revoked = false;
  v1::WorkerOrder world_order;
  v1::WorkerOrder::World& world = *world_order.mutable_world();
  world.set_generation(order.generation());
  world.set_link_key(order.link_key());
  *world.mutable_placement() = placement;
  *world.mutable_coordinator() = order.coordinator();
  world.set_reason(order.reason());
  world.set_counts_as_reset(order.counts_as_reset());
  *world.mutable_layout() = order.layout();
  Tell(id, std::move(world_order));
}

void Agent::Perform(const v1::Revoke& order) {
  TellRevoked(order.generation(), order.reason());
}

void Agent::TellRevoked(uint64_t generation, const std::string& reason) {
  segments_.Revoke(generation);
  for (auto& [id, worker] : workers_) {
    const bool is_told = worker.generation != generation || std::exchange(worker.revoked, true) ||
                         worker.client.TellOver(generation, reason);
    if (!is_told) {
      v1::WorkerOrder revoked;
      revoked.mutable_revoked()->set_generation(generation);
      revoked.mutable_revoked()->set_reason(reason);
      Tell(id, std::move(revoked));
    }
  }
}

void Agent::Perform(const v1::NotifyPending& order) {
  for (const auto& [id, worker] : workers_) {
    if (worker.generation == order.generation()) {
      v1::WorkerOrder pending;
      pending.mutable_pending()->set_generation(order.generation());
      pending.mutable_pending()->set_pending(order.pending());
      Tell(id, std::move(pending));
    }
  }
}

void Agent::Perform(const v1::Release& order) {
  for (const uint64_t incarnation : order.incarnations()) {
    v1::WorkerOrder released;
    released.mutable_released();
    Tell({incarnation}, std::move(released));
  }
}

void Agent::Perform(const v1::Admit& order) {
  v1::WorkerOrder admitted;
  *admitted.mutable_admitted()->mutable_provisional() = order.provisional();
  Tell({order.incarnation()}, std::move(admitted));
}

void Agent::Perform(const v1::StopAgent& /*order*/) {
  if (std::exchange(stopping_, true)) {
    return;
  }
  for (const auto& [id, worker] : workers_) {
    processes_.SignalGroup(id, SIGKILL);
  }
  // What SIGKILL does not end is left to the reaper.
  After(kStopDeadline, [this] { FlushAndFinish(); });
  FinishWhenEmpty();
}

// To the worker alone: a shell around it would die of a signal that is meant for the program.
void Agent::Perform(const v1::SignalWorkers& order) {
  if (order.signal() != SIGUSR1 && order.signal() != SIGUSR2) {
    spdlog::error("signal {} is not passed on to workers", order.signal());
    return;
  }
  for (const auto& [id, worker] : workers_) {
    if (worker.page != nullptr) {
      worker.client.Signal(order.signal());
    } else {
      processes_.SignalProcess(id, order.signal());
    }
  }
}

// Those that have not joined yet learn of it when they do.
void Agent::Perform(const v1::OpenListeners& order) {
  const std::string& literal = order.address().literal();
  listen_.push_back(literal);
  std::set<Incarnation>& waiting = opening_[literal];
  for (const auto& [id, worker] : workers_) {
    if (worker.phase == Phase::kJoined && worker.stream.value != 0) {
      v1::WorkerOrder listen;
      *listen.mutable_listen()->mutable_address() = order.address();
      Tell(id, std::move(listen));
      waiting.insert(id);
    }
  }
  StopAwaitingListener({});
}

// ---------------------------------------------------------------- helpers

Agent::Worker* Agent::Find(Incarnation id) {
  const auto it = workers_.find(id);
  return it == workers_.end() ? nullptr : &it->second;
}

void Agent::Tell(Incarnation id, v1::WorkerOrder order) {
  if (const Worker* worker = Find(id); worker != nullptr && worker->stream.value != 0) {
    service_.Send(worker->stream, std::move(order));
  }
}

void Agent::After(Duration delay, Loop::Callback callback) {
  loop_.After(delay, [alive = std::weak_ptr<bool>(alive_), callback = std::move(callback)] {
    if (!alive.expired()) {
      callback();
    }
  });
}

void Agent::SendSummary() {
  v1::AgentSummary summary;
  summary.set_workers_starved(LoseTheSilent());
  summary.set_workers_alive(static_cast<uint32_t>(workers_.size()));
  driver_.SendSummary(std::move(summary));
  After(kSummaryInterval, [this] { SendSummary(); });
}

void Agent::FinishWhenEmpty() {
  if (stopping_ && workers_.empty()) {
    FlushAndFinish();
  }
}

void Agent::FlushAndFinish() {
  if (std::exchange(flushing_, true)) {
    return;
  }
  output_.Flush(kFlushDeadline, [this, alive = std::weak_ptr<bool>(alive_)] {
    loop_.Post([this, alive] {
      if (!alive.expired()) {
        Finish();
      }
    });
  });
}

// The driver ends the stream when it has read the last report; one that does not is not waited for.
void Agent::Finish() {
  driver_.Finish();
  After(kFarewellDeadline, [this] {
    if (!std::exchange(finished_, true)) {
      callbacks_.finished();
    }
  });
}

void Agent::OnConnected(std::shared_ptr<grpc::Channel> channel) {
  output_.Connect(std::move(channel));
}

void Agent::OnSessionEnded(const Status& status) {
  if (std::exchange(finished_, true)) {
    return;
  }
  if (flushing_) {
    callbacks_.finished();
  } else {
    callbacks_.abandoned(status);
  }
}

}  // namespace muster::launcher
