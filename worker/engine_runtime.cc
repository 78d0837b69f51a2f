#include "worker/engine_runtime.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "common/check.h"
#include "common/log.h"
#include "common/worker_page.h"
#include "worker/core/dtype.h"
#include "worker/fault.h"
#include "worker/trace_fields.h"

namespace muster::worker {
namespace {

/// Waits wake up at least this often; what ends them is always told by the engine.
constexpr std::chrono::seconds kWaitPeriod{1};

std::string FromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Status ReadTimeout(std::chrono::milliseconds& timeout) {
  const std::string text = FromEnvironment("HOROVOD_GLOO_TIMEOUT_SECONDS");
  if (text.empty()) {
    return Status::Ok();
  }
  char* end = nullptr;
  const double seconds = std::strtod(text.c_str(), &end);
  if (*end != '\0' || !(seconds > 0 && seconds < 1e6)) {
    return Status::Invalid("HOROVOD_GLOO_TIMEOUT_SECONDS=" + text +
                           " is not a time in seconds above 0");
  }
  timeout = std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
  return Status::Ok();
}

// A world of one by mistake trains on a part of the data without a word.
void WarnUnderAnotherLauncher() {
  for (const char* name :
       {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "TORCHELASTIC_RUN_ID"}) {
    if (std::getenv(name) != nullptr) {
      spdlog::warn(
          "{} is set, but no muster agent: this process is a world of one. Start it "
          "with `muster run`",
          name);
      return;
    }
  }
  if (std::getenv("RANK") != nullptr && std::getenv("WORLD_SIZE") != nullptr) {
    spdlog::warn(
        "RANK and WORLD_SIZE are set, but no muster agent: this process is a world of "
        "one. Start it with `muster run`");
  }
}

}  // namespace

Result<RuntimeOptions> OptionsFromEnvironment() {
  RuntimeOptions options;
  options.trace_path = FromEnvironment("MUSTER_TRACE");
  const Status timeout = ReadTimeout(options.engine.operation_timeout);
  if (!timeout.ok()) {
    return timeout;
  }
  Result<CollectiveOptions> collective = ReadCollectiveOptions();
  if (!collective.ok()) {
    return collective.status();
  }
  options.engine.collective = std::move(collective).value();
  AgentAccess agent;
  agent.directory = FromEnvironment(kEnvAgentDirectory);
  if (agent.directory.empty()) {
    return options;
  }
  Result<ListenPlan> listen =
      ReadListenPlan(FromEnvironment(kEnvListen), FromEnvironment(kEnvPortRange));
  if (!listen.ok()) {
    return listen.status();
  }
  options.engine.listen = std::move(listen).value();
  agent.key = FromEnvironment(kEnvWorkerKey);
  const std::string incarnation = FromEnvironment(kEnvIncarnation);
  char* end = nullptr;
  agent.incarnation = std::strtoull(incarnation.c_str(), &end, 10);
  if (agent.key.empty() || incarnation.empty() || *end != '\0') {
    return Status::Invalid(std::string(kEnvAgentDirectory) + " is set, but " +
                           (agent.key.empty() ? kEnvWorkerKey : kEnvIncarnation) +
                           " is not right: a job's worker calls init() once, and not from a "
                           "process that it has started");
  }
  ::unsetenv(kEnvWorkerKey);
  ::unsetenv(kEnvListen);  // Says nothing of the processes that this one starts.
  options.engine.host = FromEnvironment(kEnvHost);
  options.engine.slot = std::atoi(FromEnvironment(kEnvSlot).c_str());
  options.engine.agent = std::move(agent);
  return options;
}

EngineRuntime::EngineRuntime(RuntimeOptions options)
    : trace_(options.trace_path), engine_(std::move(options.engine), bulletin_) {}

// Without a word of Done, so that it waits for no peer.
EngineRuntime::~EngineRuntime() {
  ShutdownWith(1);
}

void EngineRuntime::Init(const std::vector<std::vector<int>>& process_sets) {
  MUSTER_CHECK(phase_ == Phase::kNew, "a runtime starts once");
  if (!engine_.has_agent()) {
    WarnUnderAnotherLauncher();
  }
  const Status started = engine_.Start();
  std::string failure = started.message();
  bool released = false;
  if (started.ok()) {
    const MutexLock lock(bulletin_.mutex);
    while (!bulletin_.failure && !bulletin_.formed && !bulletin_.provisional &&
           !bulletin_.released) {
      bulletin_.changed.WaitFor(bulletin_.mutex, kWaitPeriod);
    }
    failure = bulletin_.failure.value_or("");
    released = bulletin_.released;
    if (bulletin_.formed) {
      Adopt(*bulletin_.formed);
    } else if (bulletin_.provisional) {
      place_ = *bulletin_.provisional;
      newcomer_ = true;
    }
  }
  phase_ = Phase::kRunning;
  if (!failure.empty()) {
    ShutdownWith(1);
    throw Error(failure);
  }
  if (released) {
    // The job ended without this worker.
    Shutdown();
    std::exit(0);
  }
  CheckFirstSets(process_sets);
  trace_.Write("init", TraceFields(place_, std::nullopt));
  FaultPoint("init", place_.rank);
}

// Under the bulletin's mutex; rank() and size() change here and nowhere else.
void EngineRuntime::Adopt(const Place& place) {
  place_ = place;
  bulletin_.adopted = place.generation;
  newcomer_ = false;
  left_ = false;
  for (auto& count : unnamed_) {
    count = 0;
  }
}

void EngineRuntime::ShutdownWith(int exit_code) {
  if (phase_.exchange(Phase::kEnded) != Phase::kRunning) {
    return;
  }
  bool lost = false;
  {
    const MutexLock lock(bulletin_.mutex);
    lost = bulletin_.revoked >= bulletin_.adopted;
  }
  if (exit_code == 0 && !elastic_ && !done_ && !lost && !newcomer_) {
    ReportDone();
  }
  engine_.Shutdown(done_ && exit_code == 0);
  trace_.Write("exit", TraceFields(place_, held()));
}

// ---------------------------------------------------------------- calls

std::string EngineRuntime::UnnamedName(OpKind kind) {
  return std::string(Name(kind)) + ".noname." +
         std::to_string(++unnamed_[static_cast<size_t>(kind)]);
}

std::exception_ptr EngineRuntime::Refusal(const Submission& submission, Generation generation) {
  constexpr size_t kNameBytesMax = 4096;
  if (generation.value == 0) {
    return std::make_exception_ptr(InvalidCollective(
        "'" + submission.name +
        "': this worker has been admitted to a running job and belongs to no world before its "
        "first sync; collectives have to be inside elastic::run"));
  }
  if (submission.name.size() > kNameBytesMax) {
    return std::make_exception_ptr(InvalidCollective(
        "a name of " + std::to_string(submission.name.size()) + " bytes is longer than 4096"));
  }
  {
    const MutexLock lock(bulletin_.mutex);
    if (bulletin_.revoked >= generation) {
      AwaitSessionsEnded(bulletin_);
      return LostError(generation, bulletin_.revoke_reason);
    }
  }
  if (!book_.Add(generation, submission.set, submission.name)) {
    return std::make_exception_ptr(InvalidCollective(
        "'" + submission.name +
        "' is already in flight on this rank; wait for it, or give the second call another name"));
  }
  return nullptr;
}

Handle EngineRuntime::Submit(Submission submission) {
  const bool reusable = !submission.name.empty();
  if (!reusable) {
    submission.name = UnnamedName(submission.kind);
  }
  std::vector<Submission> one;
  one.push_back(std::move(submission));
  return SubmitNamed(std::move(one), reusable);
}

// Without the number of members in their names, as Horovod has it: ranks that disagree about it
// would wait for each other instead of hearing so.
Handle EngineRuntime::SubmitGroup(std::vector<Submission> members) {
  if (members.empty()) {
    auto operation = std::make_shared<Operation>();
    [[maybe_unused]] const bool has_callbacks = operation->Complete(nullptr);
    return Handle(std::move(operation));
  }
  const bool reusable = !members.front().name.empty();
  const std::string base = reusable ? members.front().name : UnnamedName(members.front().kind);
  const auto size = static_cast<uint32_t>(members.size());
  for (uint32_t i = 0; i < size; ++i) {
    members[i].name = base + "[" + std::to_string(i) + "]";
    members[i].group = {base, size, i};
  }
  return SubmitNamed(std::move(members), reusable);
}

// If one of a group cannot go ahead, none does.
Handle EngineRuntime::SubmitNamed(std::vector<Submission> submissions, bool reusable) {
  if (phase_ != Phase::kRunning) {
    throw Error("muster has been shut down");
  }
  Generation generation;
  {
    const MutexLock lock(bulletin_.mutex);
    generation = bulletin_.adopted;
  }
  auto operation = std::make_shared<Operation>(submissions.size(), this, generation.value);
  for (size_t i = 0; i < submissions.size(); ++i) {
    const std::exception_ptr refusal = Refusal(submissions[i], generation);
    if (!refusal) {
      continue;
    }
    for (size_t added = 0; added < i; ++added) {
      book_.Remove(generation, submissions[added].set, submissions[added].name);
    }
    auto refused = std::make_shared<Operation>();
    [[maybe_unused]] const bool has_callbacks = refused->Complete(refusal);
    return Handle(std::move(refused));
  }
  std::vector<std::shared_ptr<Call>> calls;
  for (Submission& submission : submissions) {
    calls.push_back(
        std::make_shared<Call>(std::move(submission), generation, reusable, operation, book_));
  }
  engine_.Submit(calls);
  return Handle(std::move(operation));
}

int64_t EngineRuntime::Value(Handle& handle) {
  return OperationAccess::Of(handle).WaitForValue();
}

// ---------------------------------------------------------------- process sets

ProcessSets EngineRuntime::CurrentSets() const {
  const std::shared_ptr<Session> session = engine_.current();
  if (!session || session->generation() != place_.generation) {
    throw WorkersLost("the process sets of a world that is over");
  }
  return session->sets();
}

std::vector<int> EngineRuntime::SetRanks(ProcessSet set) const {
  const ProcessSets sets = CurrentSets();
  const ProcessSets::Set* found = sets.Find(set.id);
  if (found == nullptr || found->broken()) {
    throw InvalidCollective("process set " + std::to_string(set.id) +
                            (found == nullptr ? " does not exist" : " has lost a worker"));
  }
  return {found->ranks.begin(), found->ranks.end()};
}

std::vector<ProcessSet> EngineRuntime::Sets() const {
  const ProcessSets sets = CurrentSets();
  std::vector<ProcessSet> ids;
  for (const auto& [id, set] : sets.all()) {
    ids.push_back({id});
  }
  return ids;
}

uint64_t EngineRuntime::JoinedAgreements() const {
  const std::shared_ptr<Session> session = engine_.current();
  return session && session->generation() == place_.generation ? session->joined_agreements() : 0;
}

// Rank 0's list made the sets. A newcomer has those of the job.
void EngineRuntime::CheckFirstSets(const std::vector<std::vector<int>>& wanted) const {
  if (newcomer_ || wanted.empty()) {
    return;
  }
  const ProcessSets sets = CurrentSets();
  for (size_t i = 0; i < wanted.size(); ++i) {
    std::vector<int32_t> ranks(wanted[i].begin(), wanted[i].end());
    std::sort(ranks.begin(), ranks.end());
    const ProcessSets::Set* found = sets.Find(static_cast<int32_t>(i + 1));
    if (found == nullptr || found->ranks != ranks) {
      throw Error(
          "process set " + std::to_string(i + 1) + " " +
          ToString(Shape(ranks.begin(), ranks.end())) +
          " given to init() is no set of ranks of this world, or not the same as on rank 0");
    }
  }
}

// ---------------------------------------------------------------- elastic::run

bool EngineRuntime::PendingChange() const {
  const MutexLock lock(bulletin_.mutex);
  return bulletin_.pending || bulletin_.draining;
}

std::optional<CommitId> EngineRuntime::held() const {
  const MutexLock lock(bulletin_.mutex);
  return bulletin_.held;
}

void EngineRuntime::EnterElastic() {
  elastic_ = true;
  if (newcomer_ && !std::exchange(warm_reported_, true)) {
    v1::WorkerReport report;
    report.mutable_warm();
    engine_.Report(std::move(report));
  }
  if (std::exchange(done_, false)) {
    v1::WorkerReport report;
    report.mutable_running()->set_generation(place_.generation.value);
    engine_.Report(std::move(report));
  }
}

void EngineRuntime::SetHeld(std::optional<CommitId> held) {
  const MutexLock lock(bulletin_.mutex);
  bulletin_.held = held;
}

void EngineRuntime::Leave() {
  left_ = true;
  v1::WorkerReport report;
  report.mutable_left()->set_generation(place_.generation.value);
  if (const auto commit = held()) {
    report.mutable_left()->mutable_held()->set_generation(commit->generation);
    report.mutable_left()->mutable_held()->set_sequence(commit->sequence);
  }
  engine_.Report(std::move(report));
}

Awaited EngineRuntime::AwaitWorld() {
  if (phase_ != Phase::kRunning) {
    throw Error("muster has been shut down");
  }
  bool revoked = false;
  {
    const MutexLock lock(bulletin_.mutex);
    revoked = bulletin_.revoked >= place_.generation;
  }
  const bool ordered = newcomer_ || revoked || (left_ && engine_.has_agent());
  if (!ordered) {
    engine_.AbandonGeneration(place_.generation);
  }
  const MutexLock lock(bulletin_.mutex);
  for (;;) {
    if (bulletin_.released) {
      return Awaited::kReleased;
    }
    if (bulletin_.stopped) {
      throw Error("muster has been shut down");
    }
    if (bulletin_.formed && bulletin_.formed->generation > place_.generation) {
      Adopt(*bulletin_.formed);
      return Awaited::kWorld;
    }
    bulletin_.changed.WaitFor(bulletin_.mutex, kWaitPeriod);
  }
}

void EngineRuntime::ReportSynced(CommitId commit) {
  v1::WorkerReport report;
  report.mutable_synced()->set_generation(place_.generation.value);
  report.mutable_synced()->mutable_commit()->set_generation(commit.generation);
  report.mutable_synced()->mutable_commit()->set_sequence(commit.sequence);
  engine_.Report(std::move(report));
}

void EngineRuntime::ReportDone() {
  done_ = true;
  v1::WorkerReport report;
  report.mutable_done()->set_generation(place_.generation.value);
  engine_.Report(std::move(report));
}

}  // namespace muster::worker
