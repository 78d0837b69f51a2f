// The half of Agent that deals with workers; agent.cc deals with the driver.

#include <signal.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "common/address.h"
#include "common/log.h"
#include "common/secret.h"
#include "common/version.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/process_scan.h"
#include "launcher/agent/worker_relay.h"

namespace muster::launcher {
namespace {

// A shell around a dying worker gets this long to end with the worker's code.
constexpr Duration kWrapperGrace = std::chrono::seconds(1);
// For the end of a worker's stream after its mutex was unlocked or its process ended.
constexpr Duration kLastReportDeadline = std::chrono::milliseconds(500);

std::string InSeconds(Duration duration) {
  const auto tenths = duration / std::chrono::milliseconds(100);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

}  // namespace

void Agent::OnExecuted(Incarnation id, const Status& status) {
  const Worker* worker = Find(id);
  if (worker == nullptr) {
    return;
  }
  if (!status.ok()) {
    workers_.erase(id);
    ReportSpawnFailed(id, status);
    FinishWhenEmpty();
    return;
  }
  spdlog::info("worker #{} started on slot {}, pid {}", id.value, worker->slot, worker->pid);
  v1::AgentReport report;
  report.mutable_worker_started()->set_incarnation(id.value);
  report.mutable_worker_started()->set_pid(static_cast<uint64_t>(worker->pid));
  driver_.Send(std::move(report));
}

void Agent::ReportSpawnFailed(Incarnation id, const Status& status) {
  spdlog::warn("worker #{} cannot be started: {}", id.value, status.message());
  v1::AgentReport report;
  report.mutable_spawn_failed()->set_incarnation(id.value);
  report.mutable_spawn_failed()->set_message(status.message());
  driver_.Send(std::move(report));
}

Result<std::shared_ptr<SharedPage>> Agent::OnPageAsked(Incarnation id,
                                                       std::string_view key,
                                                       PageClient client) {
  Worker* worker = Find(id);
  if (worker == nullptr || !EqualInConstantTime(key, worker->key)) {
    return Status::Invalid("this agent has no such worker, or the key is wrong");
  }
  if (worker->refused) {
    return Status::Invalid("this worker was expelled from the job");
  }
  if (worker->page != nullptr && (worker->phase != Phase::kStarted || !worker->client.HasEnded())) {
    return Status::Invalid("another process (pid " + std::to_string(worker->client.pid) +
                           ") is this worker already: only one process per slot may call init()");
  }
  Result<std::shared_ptr<SharedPage>> page = SharedPage::Create();
  if (page.ok()) {
    worker->page = page.value();
    worker->client = std::move(client);
  }
  return page;
}

void Agent::OnSegmentAsked(const SegmentAsk& ask, SegmentStore::Reply reply) {
  if (const Status status = CheckSegmentAsk(ask); status.ok()) {
    segments_.Ask(ask.generation, std::move(reply));
  } else {
    spdlog::warn("worker #{} gets no shared memory: {}", ask.worker.value, status.message());
    reply(status);
  }
}

Status Agent::CheckSegmentAsk(const SegmentAsk& ask) const {
  const auto it = workers_.find(ask.worker);
  if (it == workers_.end() || !EqualInConstantTime(ask.key, it->second.key)) {
    return Status::Invalid("this agent has no such worker, or the key is wrong");
  }
  const Worker& worker = it->second;
  if (worker.refused) {
    return Status::Invalid("this worker was expelled from the job");
  }
  if (worker.phase != Phase::kJoined || worker.client.pid != ask.pid) {
    return Status::Invalid("this process has not joined, or has left");
  }
  if (worker.generation != ask.generation) {
    return Status::Invalid("this worker is not a member of generation " +
                           std::to_string(ask.generation));
  }
  return Status::Ok();
}

void Agent::OnWorkerReport(StreamId stream, const v1::WorkerReport& report) {
  const auto it = streams_.find(stream);
  if (it == streams_.end()) {
    if (report.has_join()) {
      OnJoin(stream, report.join());
    } else {
      service_.Finish(stream, {grpc::StatusCode::FAILED_PRECONDITION, "the first report is Join"});
    }
    return;
  }
  const Incarnation id = it->second;
  Worker* worker = Find(id);
  if (worker == nullptr || worker->refused) {
    return;
  }
  worker->done = report.has_done() || (worker->done && !report.has_running());
  if (report.has_bye()) {
    ReportBye(id);
  } else if (report.has_listening()) {
    OnListening(id, report.listening());
  } else if (std::optional<v1::AgentReport> relayed = RelayedReport(id, report)) {
    driver_.Send(std::move(*relayed));
  } else {
    spdlog::warn("worker #{} sent a report that was not expected", id.value);
  }
}

grpc::Status Agent::CheckJoin(const v1::WorkerReport::Join& join) const {
  const auto it = workers_.find({join.incarnation()});
  if (it == workers_.end() || !EqualInConstantTime(join.key(), it->second.key)) {
    return {grpc::StatusCode::PERMISSION_DENIED,
            "this agent has no such worker, or the key is wrong"};
  }
  const Worker& worker = it->second;
  if (join.protocol() != kProtocolVersion) {
    return {grpc::StatusCode::FAILED_PRECONDITION,
            "the worker's library speaks protocol " + std::to_string(join.protocol()) +
                ", the agent " + std::to_string(kProtocolVersion)};
  }
  if (worker.refused) {
    return {grpc::StatusCode::PERMISSION_DENIED, "this worker was expelled from the job"};
  }
  if (worker.phase != Phase::kStarted) {
    return {grpc::StatusCode::ALREADY_EXISTS,
            "pid " + std::to_string(worker.client.pid) +
                " has joined as this worker: only one process per slot may call init()"};
  }
  if (worker.page == nullptr || static_cast<uint64_t>(worker.client.pid) != join.pid()) {
    return {grpc::StatusCode::FAILED_PRECONDITION, "this process has not got its page yet"};
  }
  if (worker.page->state() == AliveState::kUnlocked) {
    return {grpc::StatusCode::FAILED_PRECONDITION, "the page is locked first, then joined with"};
  }
  return grpc::Status::OK;
}

void Agent::OnJoin(StreamId stream, const v1::WorkerReport::Join& join) {
  if (const grpc::Status status = CheckJoin(join); !status.ok()) {
    spdlog::warn("a worker may not join as #{}: {}", join.incarnation(), status.error_message());
    service_.Finish(stream, status);
    return;
  }
  const Incarnation id{join.incarnation()};
  Worker& worker = *Find(id);
  worker.phase = Phase::kJoined;
  worker.stream = stream;
  streams_[stream] = id;
  v1::WorkerOrder answer;
  v1::WorkerOrder::Joined& joined = *answer.mutable_joined();
  joined.set_host(options_.host);
  joined.set_slot(worker.slot);
  joined.set_stall_warning_ms(welcome_.stall_warning_ms());
  joined.set_stall_shutdown_ms(welcome_.stall_shutdown_ms());
  joined.set_first_start(!worker.newcomer);
  v1::WorkerJoined report;
  report.set_incarnation(id.value);
  report.set_pid(join.pid());
  *report.mutable_addresses() = join.addresses();
  if (ListensEverywhere(join)) {
    ReportJoined(std::move(report));
  } else {
    worker.held_join = std::move(report);
    for (const std::string& literal : listen_) {
      joined.add_listen()->set_literal(literal);
    }
  }
  Tell(id, std::move(answer));
  watch_.Add(id.value, worker.page);
}

void Agent::ReportJoined(v1::WorkerJoined joined) {
  v1::AgentReport report;
  *report.mutable_worker_joined() = std::move(joined);
  driver_.Send(std::move(report));
}

// True if it listens at all addresses that were ordered since it was started.
bool Agent::ListensEverywhere(const v1::WorkerReport::Join& join) const {
  return std::all_of(listen_.begin(), listen_.end(), [&](const std::string& wanted) {
    const Result<HostAndPort> host = SplitAddress(wanted);
    return std::any_of(
        join.addresses().begin(), join.addresses().end(), [&](const v1::Address& address) {
          const Result<HostAndPort> own = SplitAddress(address.literal());
          return host.ok() && own.ok() && own.value().host == host.value().host;
        });
  });
}

void Agent::OnListening(Incarnation id, const v1::WorkerReport::Listening& listening) {
  Worker& worker = *Find(id);
  if (worker.held_join) {
    *worker.held_join->mutable_addresses() = listening.addresses();
    ReportJoined(std::move(*std::exchange(worker.held_join, std::nullopt)));
  } else {
    v1::AgentReport report;
    report.mutable_worker_listening()->set_incarnation(id.value);
    *report.mutable_worker_listening()->mutable_addresses() = listening.addresses();
    driver_.Send(std::move(report));
  }
  StopAwaitingListener(id);
}

// It listens, or never will. The driver hears of each address for which nobody is awaited any more.
void Agent::StopAwaitingListener(Incarnation id) {
  for (auto it = opening_.begin(); it != opening_.end();) {
    it->second.erase(id);
    if (!it->second.empty()) {
      ++it;
      continue;
    }
    v1::AgentReport report;
    report.mutable_listeners_opened()->mutable_address()->set_literal(it->first);
    driver_.Send(std::move(report));
    it = opening_.erase(it);
  }
}

// A stream that breaks is no verdict: only the mutex and the process itself tell of a death. But
// it is the end of what the worker had to say, for which its goodbye or exit may be waiting.
void Agent::OnStreamBroken(StreamId stream) {
  const auto it = streams_.find(stream);
  if (it == streams_.end()) {
    return;
  }
  const Incarnation id = it->second;
  streams_.erase(it);
  Worker* worker = Find(id);
  if (worker == nullptr) {
    return;
  }
  worker->stream = {};
  if (worker->exit) {
    ReportExit(id);
  } else if (worker->unlocked) {
    ReportBye(id);
  }
}

void Agent::OnAliveEnded(Incarnation id, AliveState state) {
  Worker* worker = Find(id);
  if (worker == nullptr || worker->phase != Phase::kJoined) {
    return;
  }
  if (state == AliveState::kOwnerDied) {
    OnOwnerDied(id, *worker);
    return;
  }
  worker->unlocked = true;
  AfterLastReport(*worker, [this, id] { ReportBye(id); });
}

void Agent::OnOwnerDied(Incarnation id, Worker& worker) {
  Lose(id,
       worker,
       v1::WorkerLost::KIND_OWNER_DIED,
       "pid " + std::to_string(worker.client.pid) + " is dying");
}

// A worker that ticks may have been stopped since, which one thread tells: hundreds of workers are
// looked at in one go, and other news waits for that long.
SilenceSample Agent::SampleOf(const Worker& worker) {
  const uint64_t ticks = worker.page->ticks();
  const pid_t pid = worker.client.pid;
  const pid_t engine = worker.page->owner();
  return {ticks,
          ActivityOf(worker.silence.HasTicked(ticks) ? ThreadStates(pid, {engine})
                                                     : ThreadStates(pid, {pid, engine}))};
}

// Before a worker is lost for its sleep all of its threads are looked at. One that runs may hold
// what the engine waits for without end: the lock of the process's memory, while it forks a child
// of many gigabytes. And of a worker in a PID namespace of its own the engine cannot be seen. But a
// thread that spins may itself be waiting for the engine, so this excuse ends.
SilenceVerdict Agent::JudgeSilence(Worker& worker, Instant now) {
  SilenceSample sample = SampleOf(worker);
  const SilenceVerdict verdict = worker.silence.Judge(sample, now);
  if (verdict != SilenceVerdict::kSilent || worker.silence.without_tick() >= kExcusedMax) {
    return verdict;
  }
  sample.activity = ActivityOf(ThreadStates(worker.client.pid));
  return sample.activity == Activity::kAsleep ? verdict : worker.silence.Judge(sample, now);
}

uint32_t Agent::LoseTheSilent() {
  uint32_t starved = 0;
  const Instant now = loop_.Now();
  for (auto& [id, worker] : workers_) {
    if (worker.phase != Phase::kJoined || worker.page->state() != AliveState::kHeld) {
      continue;  // It has not joined yet, or the mutex tells what becomes of it.
    }
    switch (JudgeSilence(worker, now)) {
      case SilenceVerdict::kWell:
        break;
      case SilenceVerdict::kStarved:
        ++starved;
        break;
      case SilenceVerdict::kFrozen:
        Lose(id,
             worker,
             v1::WorkerLost::KIND_FROZEN,
             "pid " + std::to_string(worker.client.pid) + " has been stopped by a signal for " +
                 InSeconds(worker.silence.quiet()));
        break;
      case SilenceVerdict::kSilent:
        Lose(id,
             worker,
             v1::WorkerLost::KIND_SILENT,
             "pid " + std::to_string(worker.client.pid) +
                 " sleeps and its engine has not ticked for " + InSeconds(worker.silence.quiet()));
        break;
    }
  }
  return starved;
}

void Agent::Lose(Incarnation id,
                 Worker& worker,
                 v1::WorkerLost::Kind kind,
                 const std::string& evidence) {
  spdlog::info("worker #{} is lost: {}", id.value, evidence);
  worker.phase = Phase::kLost;
  RevokeWithout(worker, evidence);
  v1::AgentReport report;
  v1::WorkerLost& lost = *report.mutable_worker_lost();
  lost.set_incarnation(id.value);
  lost.set_kind(kind);
  lost.set_evidence(evidence);
  driver_.Send(std::move(report));
  if (worker.client.pid == worker.pid) {
    processes_.SignalGroup(id, SIGKILL);
    return;
  }
  // A shell that is killed with the worker would hide the worker's code.
  worker.client.Signal(SIGKILL);
  After(kWrapperGrace, [this, id] { processes_.SignalGroup(id, SIGKILL); });
}

// A world that has lost a member is over, as the driver is about to say, who alone decides what
// comes next. Where it would say otherwise nothing is said here: in a static job, of a member that
// is done, and when the job is being ended. (That this loss is one more than a limit allows is not
// known here: then the members are on their way to the next world when the order to end comes.)
void Agent::RevokeWithout(const Worker& lost, const std::string& evidence) {
  const bool is_news = lost.generation != 0 && !lost.done && !lost.kill_ordered;
  if (welcome_.elastic() && is_news && !stopping_) {
    const std::string who = "rank " + std::to_string(lost.rank) + " on host " + options_.host;
    TellRevoked(lost.generation, who + ": " + evidence);
  }
}

void Agent::OnExited(Incarnation id, ExitStatus status) {
  if (Worker* worker = Find(id)) {
    worker->exit = status;
    AfterLastReport(*worker, [this, id] { ReportExit(id); });
  }
}

// The mutex and the process are faster than the stream: a Done that is still on its way must reach
// the driver before the exit. The end of the stream wakes us; it comes with the process's end.
void Agent::AfterLastReport(const Worker& worker, const Loop::Callback& report) {
  if (worker.stream.value == 0) {
    report();
  } else {
    After(kLastReportDeadline, report);
  }
}

void Agent::ReportBye(Incarnation id) {
  Worker* worker = Find(id);
  if (worker == nullptr || worker->phase != Phase::kJoined) {
    return;
  }
  worker->phase = Phase::kLeaving;
  v1::AgentReport report;
  report.mutable_worker_bye()->set_incarnation(id.value);
  driver_.Send(std::move(report));
}

void Agent::ReportExit(Incarnation id) {
  const auto it = workers_.find(id);
  if (it == workers_.end()) {
    return;
  }
  Worker& worker = it->second;
  watch_.Remove(id.value);
  if (worker.phase == Phase::kJoined && worker.page->state() == AliveState::kOwnerDied) {
    OnOwnerDied(id, worker);  // The watch is on its way with the same news.
  }
  ReportBye(id);
  if (worker.stream.value != 0) {
    streams_.erase(worker.stream);
    service_.Finish(worker.stream, grpc::Status::OK);
  }
  const ExitStatus status = *worker.exit;
  workers_.erase(it);
  StopAwaitingListener(id);
  spdlog::info("worker #{} exited with code {}", id.value, status.code);
  v1::AgentReport report;
  report.mutable_worker_exited()->set_incarnation(id.value);
  report.mutable_worker_exited()->set_code(status.code);
  report.mutable_worker_exited()->set_signal(status.signal);
  driver_.Send(std::move(report));
  FinishWhenEmpty();
}

bool Agent::IsAlive(Incarnation id) {
  const Worker* worker = Find(id);
  if (worker == nullptr || worker->phase == Phase::kLost) {
    return false;
  }
  return worker->page == nullptr ||
         (worker->page->state() != AliveState::kOwnerDied && !worker->client.HasEnded());
}

}  // namespace muster::launcher
