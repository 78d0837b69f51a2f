#include "test/sim/job/sim_worker.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/address.h"
#include "common/version.h"
#include "common/worker_page.h"
#include "test/sim/job/machine.h"
#include "test/sim/job/sim_generation.h"
#include "test/sim/job/site.h"
#include "test/sim/job/worker_port.h"
#include "worker/bulletin.h"
#include "worker/to_place.h"

namespace muster::sim {
namespace {

using launcher::AliveState;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using worker::Awaited;
using worker::Place;
using worker::Submission;
using worker::ToPlace;

constexpr Duration kTickPeriod = milliseconds(200);
constexpr int kExitEngine = 70;

std::map<std::string, std::string> ByName(const std::vector<std::string>& environment) {
  std::map<std::string, std::string> variables;
  for (const std::string& entry : environment) {
    const size_t equals = entry.find('=');
    variables[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  return variables;
}

void CopyHeld(const std::optional<CommitId>& held, v1::CommitId& to) {
  to.set_generation(held->generation);
  to.set_sequence(held->sequence);
}

}  // namespace

SimWorker& SimWorker::Start(Site& site,
                            Incarnation id,
                            std::vector<std::string> environment,
                            Exited exited) {
  // make_unique cannot: the constructor is private.
  std::unique_ptr<SimWorker> worker(
      new SimWorker(site, id, ByName(environment), std::move(exited)));
  SimWorker& started = *worker;
  site.workers.push_back(std::move(worker));
  site.observer.OnProcessStarted(started);
  started.Changed();
  return started;
}

SimWorker::SimWorker(Site& site,
                     Incarnation id,
                     std::map<std::string, std::string> environment,
                     Exited exited)
    : site_(site),
      universe_(site.universe),
      id_(id),
      environment_(std::move(environment)),
      exited_(std::move(exited)) {
  slot_.host = HostId{environment_.at(kEnvHost)};
  slot_.index = static_cast<uint32_t>(std::stoul(environment_.at(kEnvSlot)));
  directory_ = environment_.at(kEnvAgentDirectory);
  machine_ = site.Find(slot_.host);
  const ProcessPtr& agent = universe_.current();
  process_ =
      universe_.NewProcess("worker " + std::to_string(id.value), agent->address, agent->drift_ppm);
  fiber_ = std::make_unique<Fiber>([this] { Main(); });
  universe_.Note("worker " + std::to_string(id.value) + " starts on " + slot_.host.value + "/" +
                 std::to_string(slot_.index));
}

SimWorker::~SimWorker() {
  // The story is over: nobody else is told.
  dying_ = true;
  universe_.End(process_);
  for (auto& [generation, operation] : std::exchange(outstanding_, {})) {
    std::ignore = operation->Complete(worker::LostError({generation}, "the simulation is over"));
  }
  if (fiber_->started() && !fiber_->done()) {
    worker::SetThreadRuntime(this);
    fiber_->Resume();
    worker::SetThreadRuntime(nullptr);
  }
}

char SimWorker::state_letter() const {
  if (!process_->alive) {
    return 'Z';
  }
  return process_->stopped ? 'T' : 'S';
}

// ---------------------------------------------------------------- life and death

void SimWorker::Kill(int signal, const std::string& why) {
  doomed_ = true;
  Die({128 + signal, signal}, false, why);
}

void SimWorker::Signal(int signal) {
  if (!process_->alive) {
    return;
  }
  if (signal == 9 || signal == 15) {
    const bool newest =
        !site_.generations.empty() && generation_ == site_.generations.rbegin()->second;
    // A host that was cut off may have been given up.
    ended_at_work_ |= !doomed_ && !failed_ && !process_->stopped && in_elastic() && formed_ &&
                      newest && machine_->WellFor(std::chrono::seconds(12));
  }
  if (signal == 9) {
    Kill(9, "SIGKILL");
  } else if (signal == 15) {
    doomed_ = true;
    universe_.In(process_, microseconds(10), [this] {
      if (!site_.program.ignores_term) {
        Die({143, 15}, false, "SIGTERM");
      }
    });
  }
}

void SimWorker::Stop() {
  universe_.Note("worker " + std::to_string(id_.value) + " is stopped");
  ++stops_;
  universe_.Stop(process_);
}

void SimWorker::Continue() {
  if (process_->stopped) {
    universe_.Note("worker " + std::to_string(id_.value) + " goes on");
    universe_.Continue(process_);
  }
}

void SimWorker::ExitSoon(int code) {
  failed_ = true;
  exit_soon_ = code;
  Changed();
}

// `unlocks`: it has called shutdown(), or exit() ran its end.
void SimWorker::Die(ExitStatus status, bool unlocks, const std::string& why) {
  if (!process_->alive) {
    return;
  }
  ended_with_ = status;
  universe_.Note("worker " + std::to_string(id_.value) + " dies with " +
                 std::to_string(status.code) + (why.empty() ? "" : ": " + why));
  universe_.End(process_);
  EndGenerations(newest_, "this process has ended", true);
  for (auto& [generation, operation] : std::exchange(outstanding_, {})) {
    std::ignore = operation->Complete(worker::LostError({generation}, "this process has ended"));
  }
  universe_.At(Duration::zero(), [this] {
    dying_ = true;
    RunFiber();
  });
  // The kernel lets go of the mutex early, of the sockets and the memory later.
  universe_.At(universe_.Between(microseconds(10), milliseconds(2)), [this, unlocks] {
    if (page_ == nullptr) {
      return;
    }
    *page_->word() = static_cast<uint32_t>(unlocks || page_->state() != AliveState::kHeld
                                               ? AliveState::kUnlocked
                                               : AliveState::kOwnerDied);
    const auto it = site_.watches.find(page_.get());
    if (it != site_.watches.end()) {
      const Action watch = std::exchange(it->second, nullptr);
      site_.watches.erase(it);
      watch();
    }
  });
  universe_.At(universe_.Between(milliseconds(1), milliseconds(90)), [this, status] {
    gone_ = true;
    const auto port = site_.ports.find(directory_ + "/" + kGrpcSocketName);
    if (stream_ && port != site_.ports.end()) {
      port->second->Close(*stream_);
    }
    exited_(status);
  });
}

void SimWorker::EndProcess(const std::string& why) {
  failed_ = true;
  Die({kExitEngine, 0}, false, why);
}

// ---------------------------------------------------------------- the engine

void SimWorker::Init(const std::vector<std::vector<int>>&) {
  Join();
  Wait([this] { return failure_ || formed_ || provisional_ || released_; });
  if (failure_) {
    universe_.Note("worker " + std::to_string(id_.value) + ": init() fails: " + *failure_);
    Exit(1);
  }
  if (formed_) {
    place_ = *formed_;
  } else if (provisional_) {
    place_ = *provisional_;
    newcomer_ = true;
  } else {
    Shutdown();
    Exit(0);
  }
}

// The page first, then the lock, then the stream.
void SimWorker::Join() {
  const auto port = site_.pages.find(directory_ + "/" + kPageSocketName);
  if (port == site_.pages.end()) {
    Exit(1);
  }
  bool answered = false;
  port->second.loop->Post([this, &answered, ask = port->second.ask] {
    const Result<std::shared_ptr<launcher::SharedPage>> page =
        ask(id_, environment_.at(kEnvWorkerKey), launcher::PageClient{pid(), {}, {}});
    universe_.In(process_, microseconds(50), [this, &answered, page] {
      if (page.ok()) {
        page_ = page.value();
      } else {
        page_trouble_ = page.status();
      }
      answered = true;
      Changed();
    });
  });
  const Instant since = universe_.now();
  universe_.In(process_, std::chrono::seconds(10), [this] { Changed(); });
  Wait([&] { return answered || universe_.now() - since >= std::chrono::seconds(10); });
  const auto service = site_.ports.find(directory_ + "/" + kGrpcSocketName);
  if (page_ == nullptr || service == site_.ports.end()) {
    Exit(1);
  }
  page_->word()[0] = static_cast<uint32_t>(AliveState::kHeld);
  page_->word()[1] = static_cast<uint32_t>(pid());
  Tick();
  const auto listen = environment_.find(kEnvListen);
  const std::string literal = listen == environment_.end() ? "127.0.0.1:0" : listen->second;
  addresses_.push_back(JoinAddress(SplitAddress(literal).value().host, 5000));
  stream_ =
      service->second->Connect({process_,
                                [this](const v1::WorkerOrder& order) { OnOrder(order); },
                                [this](const std::string& reason) { OnStreamEnded(reason); }});
  v1::WorkerReport report;
  auto& join = *report.mutable_join();
  join.set_incarnation(id_.value);
  join.set_key(environment_.at(kEnvWorkerKey));
  join.set_pid(static_cast<uint64_t>(pid()));
  join.set_protocol(kProtocolVersion);
  for (const std::string& address : addresses_) {
    join.add_addresses()->set_literal(address);
  }
  Report(std::move(report));
}

void SimWorker::Tick() {
  reinterpret_cast<WorkerPage*>(page_->word())->ticks.fetch_add(1, std::memory_order_relaxed);
  universe_.In(process_, kTickPeriod, [this] { Tick(); });
}

void SimWorker::Report(v1::WorkerReport report) {
  const auto port = site_.ports.find(directory_ + "/" + kGrpcSocketName);
  if (stream_ && port != site_.ports.end()) {
    port->second->Report(*stream_, std::move(report));
  }
}

void SimWorker::ReportListening() {
  v1::WorkerReport report;
  for (const std::string& address : addresses_) {
    report.mutable_listening()->add_addresses()->set_literal(address);
  }
  Report(std::move(report));
}

void SimWorker::OnOrder(const v1::WorkerOrder& order) {
  switch (order.order_case()) {
    case v1::WorkerOrder::kJoined:
      joined_ = true;
      for (const v1::Address& address : order.joined().listen()) {
        addresses_.push_back(JoinAddress(SplitAddress(address.literal()).value().host, 5000));
      }
      if (order.joined().listen_size() > 0) {
        ReportListening();
      }
      break;
    case v1::WorkerOrder::kWorld:
      OnWorld(order.world());
      break;
    case v1::WorkerOrder::kRevoked:
      OnRevoked(order.revoked().generation(), order.revoked().reason());
      break;
    case v1::WorkerOrder::kReleased:
      released_ = true;
      doomed_ = true;
      break;
    case v1::WorkerOrder::kRefused:
      doomed_ = true;
      EndProcess("it was refused: " + order.refused().reason());
      return;
    case v1::WorkerOrder::kAdmitted:
      provisional_ = ToPlace(order.admitted().provisional());
      break;
    case v1::WorkerOrder::kPending:
      if (Generation{order.pending().generation()} == newest_) {
        pending_ = order.pending().pending();
        draining_ = draining_ && pending_;
      }
      break;
    case v1::WorkerOrder::kDraining:
      draining_ = true;
      break;
    case v1::WorkerOrder::kListen:
      addresses_.push_back(
          JoinAddress(SplitAddress(order.listen().address().literal()).value().host, 5000));
      ReportListening();
      break;
    case v1::WorkerOrder::ORDER_NOT_SET:
      universe_.Wrong("a worker gets an order that it does not know");
  }
  Changed();
}

void SimWorker::OnWorld(const v1::WorkerOrder::World& order) {
  const Generation generation{order.generation()};
  if (generation <= newest_) {
    return;
  }
  EndGenerations({generation.value - 1}, order.reason());
  newest_ = generation;
  if (shut_down_) {
    return;
  }
  rank_ = order.placement().rank();
  coordinator_.clear();
  for (const v1::Address& address : order.coordinator()) {
    coordinator_.push_back(address.literal());
  }
  told_ = ToPlace(order.placement());
  told_->generation = generation;
  told_->host = slot_.host.value;
  generation_ = site_.GenerationOf(order.generation(), order.link_key(), order.placement().size());
  generation_->Come(rank_, *this);
}

void SimWorker::OnRevoked(uint64_t generation, const std::string& reason) {
  if (Generation{generation} >= newest_) {
    newest_ = {generation};
    EndGenerations({generation}, reason);
    Changed();
  }
}

void SimWorker::TellOver(uint64_t generation, const std::string& reason) {
  universe_.In(process_,
               universe_.Between(microseconds(10), microseconds(300)),
               [this, generation, reason] { OnRevoked(generation, reason); });
}

void SimWorker::EndGenerations(Generation generation, const std::string& reason, bool died) {
  if (const std::shared_ptr<SimGeneration> ended = std::exchange(generation_, nullptr)) {
    ended->Go(rank_, died && !shut_down_);
  }
  formed_.reset();
  told_.reset();
  revoked_ = std::max(revoked_, generation);
  revoke_reason_ = reason;
  pending_ = false;
  draining_ = false;
  // In milliseconds: as soon as nobody touches the memory any more.
  std::vector<std::pair<uint64_t, std::shared_ptr<Operation>>> kept;
  for (auto& [of, operation] : std::exchange(outstanding_, {})) {
    if (of > generation.value) {
      kept.emplace_back(of, operation);
    } else {
      std::ignore = operation->Complete(worker::LostError(generation, reason));
    }
  }
  outstanding_ = std::move(kept);
}

void SimWorker::OnStreamEnded(const std::string& reason) {
  if (shut_down_) {
    return;
  }
  if (!joined_) {
    failure_ = "the agent does not take this worker: " + reason;
    Changed();
    return;
  }
  doomed_ = true;
  EndProcess("the agent of this host is gone (" + reason + ")");
}

void SimWorker::FormedSoon(uint64_t generation, Duration delay) {
  universe_.In(process_, delay, [this, generation] {
    if (generation_ != nullptr && generation_->number() == generation) {
      OnFormed();
    }
  });
}

void SimWorker::OnFormed() {
  formed_ = told_;
  v1::WorkerReport report;
  report.mutable_formed()->set_generation(generation_->number());
  if (held_) {
    CopyHeld(held_, *report.mutable_formed()->mutable_held());
  }
  Report(std::move(report));
  Changed();
}

void SimWorker::ReportBroken(uint64_t generation,
                             uint32_t suspect,
                             const std::string& evidence,
                             Duration delay) {
  universe_.In(process_, delay, [this, generation, suspect, evidence] {
    if (generation_ == nullptr || generation_->number() != generation) {
      return;
    }
    v1::WorkerReport report;
    auto& broken = *report.mutable_broken_peers();
    broken.set_generation(generation);
    broken.add_suspect_ranks(suspect);
    broken.set_evidence(evidence);
    Report(std::move(report));
  });
}

void SimWorker::CompleteSoon(uint64_t generation,
                             Submission submission,
                             std::shared_ptr<Operation> operation,
                             std::string result,
                             int64_t value,
                             Duration delay) {
  universe_.In(process_,
               delay,
               [this,
                generation,
                submission = std::move(submission),
                operation = std::move(operation),
                result = std::move(result),
                value] {
                 if (generation_ == nullptr || generation_->number() != generation) {
                   return;  // It has met the end of its generation.
                 }
                 std::erase_if(outstanding_,
                               [&](const auto& entry) { return entry.second == operation; });
                 void* to = submission.out.data;
                 if (submission.allocate) {
                   Shape shape = submission.in.shape;
                   shape[0] = static_cast<int64_t>(result.size());
                   to = submission.allocate(shape, submission.in.dtype, {});
                 }
                 if (to != nullptr && !result.empty()) {
                   std::memcpy(to, result.data(), result.size());
                 }
                 std::ignore = operation->Complete(nullptr, value);
                 Changed();
               });
}

// ---------------------------------------------------------------- worker::Runtime

Handle SimWorker::Submit(Submission submission) {
  const Generation generation = place_.generation;
  OperationHelper* const helper = this;
  auto operation = std::make_shared<Operation>(1, helper, generation.value);
  if (generation_ == nullptr || !formed_ || generation_->number() != generation.value) {
    std::ignore = operation->Complete(worker::LostError(generation, revoke_reason_));
    return Handle(operation);
  }
  outstanding_.emplace_back(generation.value, operation);
  generation_->Submit(rank_, std::move(submission), operation);
  return Handle(operation);
}

Handle SimWorker::SubmitGroup(std::vector<Submission> members) {
  return Submit(std::move(members.front()));
}

int64_t SimWorker::Value(Handle& handle) {
  return OperationAccess::Of(handle).WaitForValue();
}

void SimWorker::HelpComplete(const Operation& operation, uint64_t) {
  Wait([&] { return operation.complete(); });
}

void SimWorker::EnterElastic() {
  elastic_ = true;
  if (newcomer_ && !std::exchange(warm_reported_, true)) {
    v1::WorkerReport report;
    report.mutable_warm();
    Report(std::move(report));
    site_.observer.OnWarm(*this);
  }
  if (std::exchange(done_, false)) {
    v1::WorkerReport report;
    report.mutable_running()->set_generation(place_.generation.value);
    Report(std::move(report));
  }
}

void SimWorker::SetHeld(std::optional<CommitId> held) {
  if (held_ && held && *held < *held_) {
    universe_.Wrong("worker " + std::to_string(id_.value) + " goes back to an older commit");
  }
  held_ = held;
  holds_since_ = holds_since_.value_or(universe_.now());
  CheckProgram("at a commit");
  site_.observer.OnCommitted(*this, *held, static_cast<uint64_t>(step_));
}

void SimWorker::Leave() {
  left_ = true;
  v1::WorkerReport report;
  report.mutable_left()->set_generation(place_.generation.value);
  if (held_) {
    CopyHeld(held_, *report.mutable_left()->mutable_held());
  }
  Report(std::move(report));
}

Awaited SimWorker::AwaitWorld() {
  if (!newcomer_ && revoked_ < place_.generation && !left_) {
    ReportBroken(place_.generation.value, rank_, "the training function left the world", {});
  }
  Wait([this] { return released_ || (formed_ && formed_->generation > place_.generation); });
  if (released_) {
    return Awaited::kReleased;
  }
  place_ = *formed_;
  newcomer_ = false;
  left_ = false;
  return Awaited::kWorld;
}

void SimWorker::ReportSynced(CommitId commit) {
  v1::WorkerReport report;
  report.mutable_synced()->set_generation(place_.generation.value);
  CopyHeld(commit, *report.mutable_synced()->mutable_commit());
  Report(std::move(report));
  const bool fresh = commit == CommitId{place_.generation.value, 0};
  site_.observer.OnSynced(*this, commit, fresh);
}

void SimWorker::ReportDone() {
  done_ = true;
  v1::WorkerReport report;
  report.mutable_done()->set_generation(place_.generation.value);
  Report(std::move(report));
  site_.observer.OnDone(*this);
}

// Rank 0 goes on coordinating until nobody needs it: it is released, or its generation has ended.
void SimWorker::Shutdown() {
  shut_down_ = true;
  v1::WorkerReport bye;
  bye.mutable_bye();
  Report(std::move(bye));
  if (rank_ == 0 && generation_ != nullptr && formed_) {
    const std::shared_ptr<SimGeneration> last = generation_;
    Wait([&] { return released_ || generation_ != last || last->members().size() == 1; });
  }
}

}  // namespace muster::sim
