// Driving a session, and what comes and goes by rings and sockets.

#include <algorithm>
#include <optional>
#include <utility>

#include "common/check.h"
#include "common/log.h"
#include "worker/core/call_check.h"
#include "worker/session.h"

namespace muster::worker {
namespace {

// A driver that nothing wakes looks up this often; everything that it waits for rings its bell.
constexpr std::chrono::seconds kLookPeriod{10};

// The executor takes over when no call has come for so long, or when they keep coming for so long.
// It would compete with the caller for the session and a core, and break the operations into
// smaller steps.
constexpr std::chrono::microseconds kLinger{100};
constexpr std::chrono::microseconds kLingerMax{2000};

}  // namespace

// ---------------------------------------------------------------- who drives

// Operations that are under way, or a log that has to be followed for another reason.
bool Session::HasWork() const {
  if (end_) {
    return !callbacks_due_.empty();
  }
  const bool has_calls = calls_.size() > agreements_ || (agreements_ > 0 && agreement_awaited_);
  const bool has_jobs = !jobs_.empty() && !backend_failed_;
  return has_calls || has_jobs || follower_.joined() || (leaving_ && !left_) ||
         !callbacks_due_.empty();
}

bool Session::BeginDriving(Driver driver) {
  if (driver_ != Driver::kNone || end_) {
    return false;
  }
  driver_ = driver;
  linger_.NotifyAll();
  bell_.Enter();
  return true;
}

void Session::Linger() {
  const auto latest = std::chrono::steady_clock::now() + kLingerMax;
  while (driver_ == Driver::kNone && !end_ && callbacks_due_.empty()) {
    const auto until = std::min(last_submitted_ + kLinger, latest);
    if (std::chrono::steady_clock::now() >= until) {
      return;
    }
    linger_.WaitUntil(mutex_, until);
  }
}

// What came in between the last look and the leaving of the bell was not called for.
void Session::StopDriving() noexcept {
  const MutexLock lock(mutex_);
  driver_ = Driver::kNone;
  bell_.Leave();
  Progress();
  EnsureDriver();  // If callbacks are due, too.
}

void Session::EnsureDriver() {
  if (driver_ == Driver::kNone && HasWork() && !std::exchange(executor_scheduled_, true)) {
    // Shared: the session must be there when the executor comes to it.
    executor_.Post([self = shared_from_this()] { self->DriveOnExecutor(); });
  }
}

// Callbacks first, and with nobody driving: one may take long, or wait for what a user's thread
// could drive meanwhile.
void Session::DriveOnExecutor() noexcept {
  for (;;) {
    std::vector<std::shared_ptr<Call>> callbacks;
    {
      const MutexLock lock(mutex_);
      Linger();
      callbacks = TakeCallbacks();
      if (callbacks.empty()) {
        executor_scheduled_ = false;
        if (!BeginDriving(Driver::kExecutor)) {
          return;  // Whoever drives sees to it that this is called again, if it has to be.
        }
      }
    }
    if (callbacks.empty()) {
      break;
    }
    for (const auto& call : callbacks) {
      call->RunCallbacks();
    }
  }
  Drive([] { return false; }, true);
  StopDriving();
}

void Session::HelpComplete(const Operation& operation) noexcept {
  {
    const MutexLock lock(mutex_);
    if (operation.complete() || end_) {
      return;
    }
    if (agreements_ > 0) {
      // It may be an agreement that is waited for, and rank 0 may be computing.
      agreement_awaited_ = true;
      if (rings_ && rings_->Reaches(MemberOf(0))) {
        SendTo(0, Encode(Poke{}), true);
      }
    }
    if (!BeginDriving(Driver::kUser)) {
      return;
    }
  }
  Drive([&operation] { return operation.complete(); }, false);
  StopDriving();
}

void Session::Notify() {
  news_.fetch_add(1, std::memory_order_release);
  bell_.Ring();
}

bool Session::HasInput() const {
  return news_.load(std::memory_order_acquire) != news_seen_.load(std::memory_order_relaxed) ||
         (watched_rings_ != nullptr && watched_rings_->HasInput());
}

std::vector<std::shared_ptr<Call>> Session::TakeCallbacks() {
  return std::exchange(callbacks_due_, {});
}

void Session::Drive(const std::function<bool()>& done, bool on_executor) noexcept {
  while (!done()) {
    std::optional<Job> job;
    bool idle = false;
    {
      const MutexLock lock(mutex_);
      news_seen_.store(news_.load(std::memory_order_acquire), std::memory_order_relaxed);
      Progress();
      if (on_executor && !callbacks_due_.empty()) {
        return;
      }
      if (!jobs_.empty() && !backend_failed_) {
        job = std::move(jobs_.front());
        jobs_.pop_front();
        running_ = true;
      }
      idle = !job && (end_ || (on_executor && !HasWork()));
    }
    if (job) {
      Run(*job);
    } else if (idle) {
      return;
    } else {
      bell_.Wait(patience_, std::chrono::steady_clock::now() + kLookPeriod, [&] {
        return HasInput() || done();
      });
    }
  }
}

// ---------------------------------------------------------------- execution

void Session::Run(const Job& job) {
  const JobOutcome outcome = RunJob(*backend_, job, options_.operation_timeout);
  const MutexLock lock(mutex_);
  running_ = false;
  if (outcome.status.ok()) {
    for (size_t i = 0; i < job.items.size(); ++i) {
      if (job.items[i].call) {
        Finish(job.items[i].call, outcome.own_errors[i]);
      }
    }
  } else {
    OnExecutionFailed(job, outcome.status);
  }
  if (end_) {
    return FinishEverything();
  }
  PublishIfDue();
  CheckLeft();
}

void Session::FinishJob(const Job& job, const std::exception_ptr& error) {
  for (const JobItem& item : job.items) {
    if (item.call) {
      Finish(item.call, error);
    }
  }
}

// The memory is free, but what it means is not known yet: whether a peer died, a link broke, or the
// generation was revoked is the launcher's to say.
void Session::OnExecutionFailed(const Job& job, const Status& status) {
  backend_failed_ = true;
  if (end_) {
    return FinishJob(job, end_);
  }
  BrokenReport report;
  bool all_finished = true;
  for (const int rank : backend_->suspects()) {
    report.suspects.push_back(static_cast<uint32_t>(rank));
    all_finished = all_finished && finished_.contains(static_cast<uint32_t>(rank));
  }
  if (!report.suspects.empty() && all_finished) {
    backend_error_ = std::make_exception_ptr(WorkersFinished(
        "the operation needs " + RankList(report.suspects) + ", finished and shut down"));
    FinishJob(job, backend_error_);
    for (const Job& waiting : std::exchange(jobs_, {})) {
      FinishJob(waiting, backend_error_);
    }
    return;
  }
  std::string name = "an operation";
  for (const JobItem& item : job.items) {
    if (item.call) {
      name = Quoted(item.call->submission().name);
      failed_.push_back(item.call);
    }
  }
  if (report.suspects.empty()) {
    report.suspects.push_back(rank_);  // The fault is here.
  }
  report.evidence = name + " failed: " + status.message();
  ReportBroken(std::move(report));
}

// ---------------------------------------------------------------- messages

void Session::Progress() {
  if (end_ || !rings_ || std::exchange(progressing_, true)) {
    return;  // Called again by what a message led to: the outer call goes on.
  }
  int broken = -1;
  const Status status = rings_->Move(
      [this](int member, std::string_view frame) {
        mutex_.AssertHeld();
        OnFrame(static_cast<uint32_t>(base_rank_ + member), frame);
      },
      broken);
  progressing_ = false;
  if (!status.ok()) {
    Reject(static_cast<uint32_t>(base_rank_ + broken), status.message());
  }
}

void Session::OnFrame(uint32_t rank, std::string_view frame) {
  Result<ControlMessage> message = Decode(frame);
  if (end_) {
    return;
  }
  if (message.ok() && std::holds_alternative<Poke>(message.value())) {
    if (driver_ == Driver::kNone) {
      bell_.Leave();  // From here on messages call again.
    }
    Progress();  // Does nothing if it was a ring that brought this.
  } else if (message.ok() && coordinates() && std::holds_alternative<Requests>(message.value())) {
    OnRequests(rank, std::get<Requests>(std::move(message).value()));
  } else if (message.ok() && coordinates() && std::holds_alternative<Bye>(message.value())) {
    OnBye(rank, std::get<Bye>(message.value()));
  } else if (message.ok() && !coordinates() && std::holds_alternative<Entries>(message.value())) {
    for (const LogEntry& entry : std::get<Entries>(message.value()).entries) {
      Apply(entry);
    }
    Notify();
  } else if (message.ok() && !coordinates() && std::holds_alternative<Bye>(message.value())) {
    departed_.insert(rank);
  } else {
    Reject(rank, "it sent what does not belong here");
  }
}

void Session::OnRequests(uint32_t rank, Requests message) {
  for (Request& request : message.requests) {
    const Status status = sequencer_->Submit(rank, std::move(request), loop_.Now());
    if (!status.ok()) {
      MUSTER_CHECK(rank != rank_, status.message());
      Reject(rank, status.message());
      break;
    }
  }
  PublishIfDue();
}

void Session::OnBye(uint32_t rank, const Bye& message) {
  if (message.done) {
    sequencer_->Finish(rank);
    PublishIfDue();
    CheckLeft();
  } else {
    departed_.insert(rank);
  }
}

// Its socket may be closed by the loop's thread only; nothing more is heard of it meanwhile.
void Session::Reject(uint32_t rank, const std::string& reason) {
  MUSTER_CHECK(rank != rank_, reason);  // The log is this rank's own.
  loop_.Post([self = shared_from_this(), rank] { self->links_[rank]->Close(); });
  if (rings_ && rings_->Reaches(MemberOf(rank))) {
    rings_->Close(MemberOf(rank));
  }
  log_broken_ = log_broken_ || rank == 0;
  closed_.insert(rank);
  OnLinkBroken(rank, reason);
}

// What it said before it closed its socket may still lie in the ring.
void Session::OnLinkBroken(uint32_t rank, const std::string& reason) {
  Progress();
  if (!coordinates() && finished_.contains(rank)) {
    FinishAll(std::make_exception_ptr(WorkersFinished("rank 0 has finished and shut down")));
  }
  if (end_ || leaving_ || finished_.contains(rank) || departed_.contains(rank)) {
    CheckLeft();
    return;
  }
  ReportBroken(
      {{rank}, false, "the control link with rank " + std::to_string(rank) + " broke: " + reason});
}

void Session::ReportBroken(BrokenReport report) {
  std::erase_if(report.suspects, [this](uint32_t rank) {
    mutex_.AssertHeld();
    return departed_.contains(rank) || !reported_.insert(rank).second;
  });
  if (!report.suspects.empty() && !end_) {
    loop_.Post(
        [on_broken = callbacks_.on_broken, report = std::move(report)] { on_broken(report); });
  }
}

void Session::SendTo(uint32_t rank, std::string_view frame, bool call) {
  if (rings_ && rings_->Reaches(MemberOf(rank))) {
    if (rings_->Send(MemberOf(rank), frame, call)) {
      SendOnSocket(rank, Encode(Poke{}));
    }
    if (rings_->queued_bytes(MemberOf(rank)) > ControlLink::kQueuedBytesMax &&
        !closed_.contains(rank)) {
      Reject(rank, "it does not read what it is sent");
    }
  } else {
    SendOnSocket(rank, std::string(frame));
  }
}

void Session::SendOnSocket(uint32_t rank, std::string frame) {
  outbox_.emplace_back(rank, std::move(frame));
  sockets_flushed_ = false;
  if (!std::exchange(flush_posted_, true)) {
    loop_.Post([self = shared_from_this()] { self->FlushOutbox(); });
  }
}

void Session::FlushOutbox() {
  std::vector<std::pair<uint32_t, std::string>> out;
  {
    const MutexLock lock(mutex_);
    flush_posted_ = false;
    out.swap(outbox_);
  }
  for (const auto& [rank, frame] : out) {
    if (links_[rank]) {
      links_[rank]->Send(frame);
    }
  }
  CheckFlushed();
}

// What is left to be written when nothing comes up any more is looked at again with each tick.
void Session::CheckFlushed() {
  const bool flushed = std::all_of(links_.begin(), links_.end(), [](const auto& link) {
    return !link || link->closed() || link->flushed();
  });
  const MutexLock lock(mutex_);
  sockets_flushed_ = flushed;
  CheckLeft();
}

}  // namespace muster::worker
