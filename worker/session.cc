#include "worker/session.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/log.h"
#include "worker/collective/gloo_backend.h"
#include "worker/collective_runner.h"
#include "worker/core/call_check.h"

namespace muster::worker {
namespace {

template <class Exception>
std::exception_ptr MakeError(const std::string& message) {
  return std::make_exception_ptr(Exception(message));
}

constexpr const char* kShutDown = "this worker has shut down";

}  // namespace

Session::Session(Loop& loop,
                 Executor& executor,
                 const Place& place,
                 SessionTimes times,
                 FormedLinks links,
                 Callbacks callbacks)
    : loop_(loop),
      executor_(executor),
      generation_(place.generation),
      rank_(static_cast<uint32_t>(place.rank)),
      size_(static_cast<uint32_t>(place.size)),
      times_(times),
      callbacks_(std::move(callbacks)),
      links_(std::move(links.control)),
      backend_(MakeGlooBackend(place.rank, std::move(links.data))) {
  if (coordinates()) {
    sequencer_ = std::make_unique<Sequencer>(size_);
  }
}

Session::~Session() = default;

void Session::Start() {
  for (uint32_t rank = 0; rank < links_.size(); ++rank) {
    if (!links_[rank]) {
      continue;
    }
    ControlLink::Callbacks callbacks;
    callbacks.on_frame = [this, rank](std::string_view frame) { OnFrame(rank, frame); };
    callbacks.on_broken = [this, rank](const std::string& reason) { OnLinkBroken(rank, reason); };
    links_[rank]->Start(std::move(callbacks));
  }
}

// ---------------------------------------------------------------- calls of this rank

void Session::Submit(const std::vector<std::shared_ptr<Call>>& calls) {
  Requests message;
  for (const std::shared_ptr<Call>& call : calls) {
    if (end_) {
      Complete(call, end_);
      continue;
    }
    if (finished_.contains(rank_)) {
      Complete(call, MakeError<WorkersFinished>(kShutDown));
      continue;
    }
    const Ticket ticket = next_ticket_++;
    Result<Request> request = follower_.Submit(ticket, call->Request());
    MUSTER_CHECK(request.ok(), request.status().message());  // The CallBook has looked.
    calls_.emplace(ticket, call);
    message.requests.push_back(std::move(request).value());
  }
  if (message.requests.empty()) {
    return;
  }
  if (coordinates()) {
    OnRequests(rank_, message);
  } else {
    SendToCoordinator(message);
  }
}

std::shared_ptr<Call> Session::TakeCall(Ticket ticket) {
  const auto it = calls_.find(ticket);
  MUSTER_CHECK(it != calls_.end(), "the follower names pending calls");
  std::shared_ptr<Call> call = std::move(it->second);
  calls_.erase(it);
  return call;
}

void Session::Complete(const std::shared_ptr<Call>& call, std::exception_ptr error, bool agreed) {
  if (call->Complete(std::move(error), agreed)) {
    executor_.Post([call] { call->RunCallbacks(); });
  }
}

// A coordinator that has gone by rights has said so in the log, so only calls made after that can
// find the link closed.
void Session::SendToCoordinator(const ControlMessage& message) {
  if (!links_[0]->closed()) {
    links_[0]->Send(Encode(message));
  } else if (finished_.contains(0)) {
    for (const auto& [ticket, call] : std::exchange(calls_, {})) {
      Complete(call, MakeError<WorkersFinished>("rank 0 has finished and shut down"));
    }
  }
}

// ---------------------------------------------------------------- the control star

void Session::OnFrame(uint32_t rank, std::string_view frame) {
  Result<ControlMessage> message = Decode(frame);
  if (message.ok() && coordinates() && std::holds_alternative<Requests>(message.value())) {
    OnRequests(rank, std::get<Requests>(message.value()));
  } else if (message.ok() && coordinates() && std::holds_alternative<Bye>(message.value())) {
    OnBye(rank, std::get<Bye>(message.value()));
  } else if (message.ok() && !coordinates() && std::holds_alternative<Entries>(message.value())) {
    for (const LogEntry& entry : std::get<Entries>(message.value()).entries) {
      Apply(entry);
    }
  } else if (message.ok() && !coordinates() && std::holds_alternative<Bye>(message.value())) {
    departed_.insert(rank);
  } else {
    links_[rank]->Close();
    OnLinkBroken(rank, "it sent what does not belong here");
  }
}

void Session::OnRequests(uint32_t rank, const Requests& message) {
  for (const Request& request : message.requests) {
    const Status status = sequencer_->Submit(rank, request, loop_.Now());
    if (!status.ok()) {
      MUSTER_CHECK(rank != rank_, status.message());
      links_[rank]->Close();
      OnLinkBroken(rank, status.message());
      break;
    }
  }
  Publish();
}

void Session::OnBye(uint32_t rank, const Bye& message) {
  if (message.done) {
    sequencer_->Finish(rank);
    Publish();
    CheckLeft();
  } else {
    departed_.insert(rank);
  }
}

void Session::OnLinkBroken(uint32_t rank, const std::string& reason) {
  if (finished_.contains(rank) || departed_.contains(rank)) {
    return;
  }
  if (leaving_) {
    CheckLeft();
    return;
  }
  ReportBroken(
      {{rank}, false, "the control link with rank " + std::to_string(rank) + " broke: " + reason});
}

void Session::ReportBroken(BrokenReport report) {
  std::erase_if(report.suspects, [this](uint32_t rank) {
    return departed_.contains(rank) || !reported_.insert(rank).second;
  });
  if (!report.suspects.empty() && !end_) {
    callbacks_.on_broken(std::move(report));
  }
}

// ---------------------------------------------------------------- the log

void Session::Publish() {
  const std::vector<LogEntry> entries = sequencer_->TakeEntries();
  if (entries.empty()) {
    return;
  }
  const std::string frame = Encode(Entries{entries});
  for (const auto& link : links_) {
    if (link) {
      link->Send(frame);
    }
  }
  for (const LogEntry& entry : entries) {
    Apply(entry);
  }
}

struct Session::EntryVisitor {
  Session& session;
  std::shared_ptr<Call> call;

  void operator()(const worker::Execute& entry) const { session.Execute(call, entry.first_dims); }
  void operator()(const Agreed& entry) const { session.Complete(call, nullptr, entry.vote); }
  void operator()(const BarrierPassed&) const { session.Complete(call, nullptr); }
  void operator()(const Rejected& entry) const {
    session.Complete(call, MakeError<InvalidCollective>(entry.message));
  }
  void operator()(const Unserved& entry) const {
    session.Complete(call,
                     MakeError<WorkersFinished>("'" + call->submission().name +
                                                "' cannot be done: " + entry.message));
  }
  void operator()(const MemberFinished&) const {}
};

void Session::Apply(const LogEntry& entry) {
  if (end_) {
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
  const Result<std::optional<Ticket>> ticket = follower_.Apply(entry);
  if (!ticket.ok()) {
    links_[0]->Close();
    OnLinkBroken(0, ticket.status().message());
  } else if (ticket.value()) {
    std::visit(EntryVisitor{*this, TakeCall(*ticket.value())}, entry);
  }
}

// ---------------------------------------------------------------- execution

void Session::Execute(std::shared_ptr<Call> call, std::vector<int64_t> first_dims) {
  executor_.Post([this, call = std::move(call), first_dims = std::move(first_dims)] {
    const Outcome outcome = RunCollective(
        *backend_, static_cast<int>(size_), call->submission(), first_dims, times_.operation);
    if (!outcome.status.ok()) {
      // The session is there until the executor has drained.
      loop_.Post([this, call, status = outcome.status] { OnExecutionFailed(call, status); });
    } else if (call->Complete(outcome.own_error)) {
      call->RunCallbacks();
    }
  });
}

// The memory is free, but what it means is not known yet: whether a peer died, a link broke, or the
// generation was revoked is the launcher's to say.
void Session::OnExecutionFailed(const std::shared_ptr<Call>& call, const Status& status) {
  if (end_) {
    Complete(call, end_);
    return;
  }
  BrokenReport report;
  bool all_finished = true;
  for (const int rank : backend_->suspects()) {
    report.suspects.push_back(static_cast<uint32_t>(rank));
    all_finished = all_finished && finished_.contains(static_cast<uint32_t>(rank));
  }
  if (!report.suspects.empty() && all_finished) {
    Complete(call,
             MakeError<WorkersFinished>("'" + call->submission().name + "' needs " +
                                        RankList(report.suspects) + ", finished and shut down"));
    return;
  }
  failed_.push_back(call);
  if (report.suspects.empty()) {
    report.suspects.push_back(rank_);  // The fault is here.
  }
  report.evidence = "'" + call->submission().name + "' failed: " + status.message();
  ReportBroken(std::move(report));
}

void Session::Tick() {
  if (!coordinates() || end_) {
    return;
  }
  const StallReport report =
      sequencer_->CheckStalls(loop_.Now(), times_.stall_warning, times_.stall_shutdown);
  for (const Stall& stall : report.warnings) {
    spdlog::warn("'{}' has been waiting for {} s: {} did not submit it",
                 stall.name,
                 stall.waited.count() / 1'000'000,
                 RankList(stall.missing));
  }
  for (const Stall& stall : report.lost) {
    ReportBroken({stall.missing,
                  true,
                  "'" + stall.name + "' was not submitted within " +
                      std::to_string(stall.waited.count() / 1'000'000) + " s"});
  }
  CheckLeft();
}

// ---------------------------------------------------------------- the end

void Session::Leave(bool done) {
  leaving_ = true;
  if (!done || end_) {
    const std::string bye = Encode(Bye{false});
    for (const auto& link : links_) {
      if (link) {
        link->Send(bye);
      }
    }
    ReportLeft();
  } else if (coordinates()) {
    sequencer_->Finish(rank_);
    Publish();
  } else {
    SendToCoordinator(Bye{true});
    CheckLeft();
  }
}

void Session::StopCoordinating() {
  stop_coordinating_ = true;
  CheckLeft();
}

void Session::OnSelfFinished() {
  for (const auto& [ticket, call] : std::exchange(calls_, {})) {
    Complete(call, MakeError<WorkersFinished>(kShutDown));
  }
  executor_.Post([this] {
    loop_.Post([this] {
      self_drained_ = true;
      CheckLeft();
    });
  });
}

void Session::CheckLeft() {
  if (!leaving_ || left_) {
    return;
  }
  if (!coordinates()) {
    if (self_drained_ || links_[0]->closed()) {
      ReportLeft();
    }
    return;
  }
  const bool flushed = std::all_of(links_.begin(), links_.end(), [](const auto& link) {
    return !link || link->closed() || link->flushed();
  });
  if (self_drained_ && ((sequencer_->AllOthersFinished(rank_) && flushed) || stop_coordinating_)) {
    ReportLeft();
  }
}

void Session::ReportLeft() {
  if (!std::exchange(left_, true)) {
    loop_.Post(callbacks_.on_left);
  }
}

void Session::End(std::exception_ptr error, std::function<void()> on_drained) {
  MUSTER_CHECK(!end_, "a session ends once");
  end_ = std::move(error);
  for (const auto& link : links_) {
    if (link) {
      link->Close();
    }
  }
  backend_->Abort();
  for (const auto& [ticket, call] : std::exchange(calls_, {})) {
    Complete(call, end_);
  }
  for (const auto& call : std::exchange(failed_, {})) {
    Complete(call, end_);
  }
  // Behind all jobs of this session, so that what they post comes before this.
  executor_.Post([this, on_drained = std::move(on_drained)] { loop_.Post(on_drained); });
}

}  // namespace muster::worker
