#include "worker/session.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/log.h"
#include "worker/collective_setup.h"
#include "worker/core/call_check.h"

namespace muster::worker {
namespace {

template <class Exception>
std::exception_ptr MakeError(const std::string& message) {
  return std::make_exception_ptr(Exception(message));
}

constexpr const char* kShutDown = "this worker has shut down";

SequencerOptions OptionsOfSequencer(const SessionOptions& options) {
  SequencerOptions result;
  result.fusion_bytes = options.fusion_bytes;
  result.id_limit = options.id_limit;
  return result;
}

}  // namespace

Session::Session(Loop& loop,
                 Executor& executor,
                 const Place& place,
                 const SessionOptions& options,
                 FormedWorld world,
                 Callbacks callbacks)
    : loop_(loop),
      executor_(executor),
      generation_(place.generation),
      rank_(static_cast<uint32_t>(place.rank)),
      size_(static_cast<uint32_t>(place.size)),
      options_(options),
      callbacks_(std::move(callbacks)),
      patience_(PatienceFor(place.local_size)),
      base_rank_(place.rank - place.local_rank),
      links_(std::move(world.control)),
      segment_(std::move(world.segment)),
      bell_(segment_ ? segment_->bell(place.local_rank) : own_bell_),
      follower_(rank_, world.sets) {
  WorldBackend made =
      MakeWorldBackend(place, world.backend, world.hosts, segment_, std::move(world.data));
  backend_ = std::move(made.backend);
  backend_name_ = made.name;
  const MutexLock lock(mutex_);
  if (segment_ && world.hosts[0] == world.hosts[rank_]) {
    rings_ = std::make_unique<RingStar>(*segment_, place.local_rank);
    watched_rings_ = rings_.get();
  }
  if (coordinates()) {
    sequencer_ = std::make_unique<Sequencer>(
        std::move(world.sets), OptionsOfSequencer(options_), ReduceSmall);
  }
}

Session::~Session() = default;

void Session::Start() {
  for (uint32_t rank = 0; rank < links_.size(); ++rank) {
    if (!links_[rank]) {
      continue;
    }
    ControlLink::Callbacks callbacks;
    callbacks.on_frame = [this, rank](std::string_view frame) {
      const MutexLock lock(mutex_);
      OnFrame(rank, frame);
      EnsureDriver();
    };
    callbacks.on_broken = [this, rank](const std::string& reason) {
      const MutexLock lock(mutex_);
      closed_.insert(rank);
      OnLinkBroken(rank, reason);
      EnsureDriver();
    };
    links_[rank]->Start(std::move(callbacks));
  }
}

// ---------------------------------------------------------------- calls of this rank

void Session::Submit(std::span<const std::shared_ptr<Call>> calls) {
  const MutexLock lock(mutex_);
  Requests requests;
  bool call_coordinator = false;
  bool blocking = true;
  for (const std::shared_ptr<Call>& call : calls) {
    SubmitOne(call, requests);
    blocking = blocking && call->submission().blocking;
    const ProcessSets::Set* set = follower_.sets().Find(call->submission().set.id);
    call_coordinator = call_coordinator || (set != nullptr && set->IndexOf(0) < 0);
  }
  if (!requests.requests.empty()) {
    SendRequests(std::move(requests), call_coordinator);
  }
  // Somebody who waits drives. Otherwise it is the executor, which sleeps as long as it can.
  if (!blocking) {
    last_submitted_ = std::chrono::steady_clock::now();
    EnsureDriver();
  }
}

void Session::SubmitOne(const std::shared_ptr<Call>& call, Requests& out) {
  if (end_) {
    return Finish(call, end_);
  }
  if (finished_.contains(rank_)) {
    return Finish(call, MakeError<WorkersFinished>(kShutDown));
  }
  const Submission& submission = call->submission();
  if (const std::string fault = follower_.sets().FindUseFault(submission.set.id, rank_);
      !fault.empty()) {
    return Finish(call, MakeError<InvalidCollective>(Quoted(submission.name) + ": " + fault));
  }
  call->Settle(follower_.sets().Find(submission.set.id)->size());
  const Ticket ticket = next_ticket_++;
  const Result<uint32_t> id = follower_.Submit(
      ticket, submission.name, call->signature(), submission.splits, !call->objection().empty());
  if (!id.ok()) {
    return Finish(call, MakeError<InvalidCollective>(id.status().message()));
  }
  calls_.emplace(ticket, call);
  agreements_ += submission.kind == OpKind::kAgreement ? 1 : 0;
  if (id.value() != 0) {
    out.requests.emplace_back(KnownRequest{id.value(), call->Small()});
  } else {
    out.requests.emplace_back(call->Request());
  }
}

// A coordinator that has gone by rights has said so in the log, so only calls made after that can
// find the link closed.
void Session::SendRequests(Requests message, bool call) {
  if (coordinates()) {
    return OnRequests(rank_, std::move(message));
  }
  if (closed_.contains(0)) {
    if (finished_.contains(0)) {
      FinishAll(MakeError<WorkersFinished>("rank 0 has finished and shut down"));
    }
    return;
  }
  for (const std::string& frame : EncodeRequests(message.requests, ControlLink::kFrameBytesMax)) {
    SendTo(0, frame, call);
  }
}

// After a join that ended with HostsUpdated the call is complete, and the rank goes on being
// joined.
std::shared_ptr<Call> Session::TakeCall(Ticket ticket) {
  const auto it = calls_.find(ticket);
  if (it == calls_.end()) {
    return nullptr;
  }
  std::shared_ptr<Call> call = std::move(it->second);
  calls_.erase(it);
  agreements_ -= call->submission().kind == OpKind::kAgreement ? 1 : 0;
  agreement_awaited_ = agreement_awaited_ && agreements_ > 0;
  return call;
}

void Session::Finish(const std::shared_ptr<Call>& call, std::exception_ptr error, int64_t value) {
  const bool has_callbacks = call->Complete(std::move(error), value);
  // It may be what the driver sleeps for, and it was the loop's thread that learned of it.
  Notify();
  if (!has_callbacks) {
    return;
  }
  if (driver_ == Driver::kExecutor || executor_scheduled_) {
    // A job posted now would wait for as long as the executor drives.
    callbacks_due_.push_back(call);
    linger_.NotifyAll();
  } else {
    executor_.Post([call] { call->RunCallbacks(); });
  }
}

void Session::FinishTickets(const std::vector<Ticket>& tickets,
                            std::exception_ptr error,
                            int64_t value) {
  for (const Ticket ticket : tickets) {
    if (const std::shared_ptr<Call> call = TakeCall(ticket)) {
      Finish(call, error, value);
    }
  }
}

void Session::FinishAll(const std::exception_ptr& error) {
  agreements_ = 0;
  agreement_awaited_ = false;
  for (const auto& [ticket, call] : std::exchange(calls_, {})) {
    Finish(call, error);
  }
}

ProcessSets Session::sets() const {
  const MutexLock lock(mutex_);
  return follower_.sets();
}

uint64_t Session::joined_agreements() const {
  const MutexLock lock(mutex_);
  return joined_agreements_;
}

LogCounters Session::counters() const {
  const MutexLock lock(mutex_);
  return sequencer_ ? sequencer_->counters() : LogCounters{};
}

// ---------------------------------------------------------------- the log

// Data operations that are decided while this rank is in the backend wait for it, and are fused.
void Session::PublishIfDue() {
  if (!sequencer_ || sequencer_->backlog().empty) {
    return;
  }
  const Backlog& backlog = sequencer_->backlog();
  const bool idle = jobs_.empty() && !running_;
  if (!idle && !backlog.urgent && backlog.data_bytes < options_.fusion_bytes) {
    return;
  }
  const std::vector<LogEntry> entries = sequencer_->TakeEntries();
  if (size_ > 1) {
    for (const std::string& frame : EncodeEntries(entries, ControlLink::kFrameBytesMax)) {
      for (uint32_t rank = 1; rank < size_; ++rank) {
        SendTo(rank, frame, false);
      }
    }
  }
  for (const LogEntry& entry : entries) {
    Apply(entry);
  }
}

struct Session::EntryVisitor {
  Session& session;
  const FollowStep& step;

  void Done(int64_t value = 0) const MUSTER_REQUIRES(session.mutex_) {
    session.FinishTickets(step.tickets, nullptr, value);
  }
  template <class Exception>
  void Fail(const std::string& message) const MUSTER_REQUIRES(session.mutex_) {
    session.FinishTickets(step.tickets, MakeError<Exception>(message), 0);
  }

  void operator()(const worker::Execute& entry) const MUSTER_REQUIRES(session.mutex_) {
    session.Execute(entry, step);
  }
  void operator()(const SmallResult& entry) const MUSTER_REQUIRES(session.mutex_) {
    for (const Ticket ticket : step.tickets) {
      if (const std::shared_ptr<Call> call = session.TakeCall(ticket)) {
        std::copy(entry.bytes.begin(),
                  entry.bytes.end(),
                  static_cast<char*>(call->submission().out.data));
        session.Finish(call, nullptr);
      }
    }
  }
  void operator()(const Agreed& entry) const MUSTER_REQUIRES(session.mutex_) {
    if (step.while_joined) {
      session.OnAgreedWhileJoined(entry.vote);
    }
    Done(entry.vote ? 1 : 0);
  }
  void operator()(const BarrierPassed&) const MUSTER_REQUIRES(session.mutex_) { Done(); }
  void operator()(const AllJoined& entry) const MUSTER_REQUIRES(session.mutex_) {
    Done(entry.last_rank);
  }
  void operator()(const SetAdded& entry) const MUSTER_REQUIRES(session.mutex_) { Done(entry.set); }
  void operator()(const SetRemoved& entry) const MUSTER_REQUIRES(session.mutex_) {
    session.groups_.erase(entry.set);
    session.FinishTickets(
        step.orphans,
        MakeError<InvalidCollective>("process set " + std::to_string(entry.set) + " was removed"),
        0);
    Done();
  }
  void operator()(const Rejected& entry) const MUSTER_REQUIRES(session.mutex_) {
    Fail<InvalidCollective>(entry.message);
  }
  void operator()(const Unserved& entry) const MUSTER_REQUIRES(session.mutex_) {
    Fail<WorkersFinished>("the operation cannot be done: " + entry.message);
  }
  void operator()(const MemberFinished&) const {}
};

void Session::Apply(const LogEntry& entry) {
  if (end_ || log_broken_) {
    return;
  }
  if (const auto* finished = std::get_if<MemberFinished>(&entry)) {
    finished_.insert(finished->rank);
    if (finished->rank == rank_) {
      OnSelfFinished();
    }
    return;
  }
  if (finished_.contains(rank_)) {
    return;  // Not this rank's any more.
  }
  const Result<FollowStep> step = follower_.Apply(entry);
  if (!step.ok()) {
    return Reject(0, step.status().message());
  }
  std::visit(EntryVisitor{*this, step.value()}, entry);
}

// The world is going to change, and what this rank holds is stale: its join ends here, while it
// goes on taking part with zeros.
void Session::OnAgreedWhileJoined(bool vote) {
  ++joined_agreements_;
  if (!vote) {
    return;
  }
  for (const auto& [ticket, call] : calls_) {
    if (call->submission().kind == OpKind::kJoin) {
      return FinishTickets(
          {ticket}, MakeError<HostsUpdated>("the world will change while this rank has joined"), 0);
    }
  }
}

std::shared_ptr<const Group> Session::GroupOf(int32_t set) {
  std::shared_ptr<const Group>& group = groups_[set];
  if (!group) {
    const ProcessSets::Set* found = follower_.sets().Find(set);
    MUSTER_CHECK(found != nullptr, "the follower has looked");
    Group made;
    made.ranks.assign(found->ranks.begin(), found->ranks.end());
    made.self = found->IndexOf(rank_);
    group = std::make_shared<const Group>(std::move(made));
  }
  return group;
}

// Every rank counts all items, so that a number means the same everywhere.
void Session::Execute(const worker::Execute& entry, const FollowStep& step) {
  Job job;
  job.number = next_number_;
  next_number_ += entry.items.size();
  if (!step.concerns) {
    return;
  }
  job.group = GroupOf(entry.set);
  for (size_t i = 0; i < entry.items.size(); ++i) {
    const Item& item = entry.items[i];
    if (step.tickets[i] == kNoTicket) {
      job.items.push_back({nullptr, item.joined.front(), item.dims});
    } else {
      std::shared_ptr<Call> call = TakeCall(step.tickets[i]);
      MUSTER_CHECK(call, "the follower names pending calls");
      job.items.push_back({std::move(call), {}, item.dims});
    }
  }
  if (backend_error_) {
    return FinishJob(job, backend_error_);
  }
  jobs_.push_back(std::move(job));
  Notify();
}

void Session::Tick() {
  CheckFlushed();
  const MutexLock lock(mutex_);
  Progress();
  EnsureDriver();
  if (!coordinates() || end_) {
    return;
  }
  const StallReport report =
      sequencer_->CheckStalls(loop_.Now(), options_.stall_warning, options_.stall_shutdown);
  for (const Stall& stall : report.warnings) {
    spdlog::warn("{}", ToString(stall));
  }
  for (const Stall& stall : report.lost) {
    ReportBroken({stall.missing, true, ToString(stall)});
  }
}

// ---------------------------------------------------------------- the end

void Session::Leave(bool done) {
  const MutexLock lock(mutex_);
  leaving_ = true;
  if (!done || end_) {
    const std::string bye = Encode(Bye{false});
    for (uint32_t rank = 0; rank < size_; ++rank) {
      if (rank != rank_ && (coordinates() || rank == 0)) {
        SendTo(rank, bye, true);
      }
    }
    left_ = true;
    loop_.Post(callbacks_.on_left);
    return;
  }
  if (coordinates()) {
    sequencer_->Finish(rank_);
    PublishIfDue();
  } else {
    SendTo(0, Encode(Bye{true}), true);
  }
  CheckLeft();
  // Nobody waits in a call any more, and the log has to be followed to its end.
  EnsureDriver();
}

void Session::StopCoordinating() {
  const MutexLock lock(mutex_);
  stop_coordinating_ = true;
  CheckLeft();
  Notify();
}

void Session::OnSelfFinished() {
  FinishAll(MakeError<WorkersFinished>(kShutDown));
  CheckLeft();
}

void Session::CheckLeft() {
  if (!leaving_ || left_) {
    return;
  }
  // Finished, and what was logged before is done.
  const bool idle = jobs_.empty() && !running_;
  const bool drained = finished_.contains(rank_) && idle;
  bool left = drained || (closed_.contains(0) && (idle || backend_failed_));
  if (coordinates()) {
    const bool flushed = outbox_.empty() && sockets_flushed_ && (!rings_ || rings_->flushed());
    left = drained && ((sequencer_->AllOthersFinished(rank_) && flushed) || stop_coordinating_);
  }
  if (left) {
    left_ = true;
    loop_.Post(callbacks_.on_left);
  }
}

void Session::FinishEverything() {
  FinishAll(end_);
  for (const Job& job : std::exchange(jobs_, {})) {
    FinishJob(job, end_);
  }
  for (const auto& call : std::exchange(failed_, {})) {
    Finish(call, end_);
  }
  loop_.Post(std::exchange(on_drained_, nullptr));
}

void Session::End(std::exception_ptr error, std::function<void()> on_drained) {
  for (const auto& link : links_) {
    if (link) {
      link->Abort();
    }
  }
  const MutexLock lock(mutex_);
  MUSTER_CHECK(!end_, "a session ends once");
  end_ = std::move(error);
  on_drained_ = std::move(on_drained);
  backend_->Abort();
  if (!running_) {
    FinishEverything();
  }
  linger_.NotifyAll();
  Notify();
}

}  // namespace muster::worker
