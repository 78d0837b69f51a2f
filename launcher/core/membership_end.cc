// Done, shutdown, stop, timers, and the end of the job (rules 10 to 12).

#include <algorithm>
#include <utility>

#include "launcher/core/membership.h"

namespace muster::launcher {
namespace {

// 128 + signal where a signal of its own ended the worker. Where Muster killed it, for what `how`
// says, the signal is not the cause.
int CodeOf(const Failure& failure) {
  const int code = failure.code.value_or(0);
  const bool own = failure.how.empty() || failure.signal == 0;
  return code != 0 && own ? code : kExitFailure;
}

}  // namespace

// A Done from an older generation has crossed the order for a newer one: it is as true, for the
// member will take no part in the sync that the others are waiting in.
void Membership::On(const WorkerDone& event) {
  Worker* worker = Find(event.worker);
  if (worker == nullptr || !worker->IsMember() || worker->done || In<Ending>() != nullptr ||
      event.generation > world_.generation) {
    return;
  }
  const bool first = !Closing();
  Update(*worker, [](Worker& w) { w.done = true; });
  Because(NameOf(*worker) + " is done");
  StopAsking(event.worker);
  // It has nothing left to leave; its epilogue is not to be cut short.
  Cancel(TimerKind::kGrace, event.worker.value);
  if (first) {
    BeginClosing();
  }
  const bool crossed = event.generation < world_.generation;
  if (crossed && tally_.at_work > 0 && In<Running>() != nullptr) {
    BreakWorld();
  }
  if (tally_.at_work == 0) {
    ReleaseDrained(std::nullopt);
  }
  todo_.reconsider |= tally_.open == 0 || In<Running>() == nullptr;
}

// After the first Done nobody joins.
void Membership::BeginClosing() {
  std::vector<Incarnation> outsiders;
  for (const auto& [id, worker] : workers_) {
    if (worker.IsOutsider() && !worker.returned) {
      outsiders.push_back(id);
    }
  }
  for (const Incarnation id : outsiders) {
    Dismiss(*Find(id));
  }
  Cancel(TimerKind::kBackoff, 0);
  Cancel(TimerKind::kSettle, 0);
  todo_.reconsider = true;
}

void Membership::On(const WorkerRunning& event) {
  Worker* worker = Find(event.worker);
  if (worker == nullptr || !worker->done || worker->bye || In<Ending>() != nullptr) {
    return;
  }
  if (state_since_) {
    // It may have another State this time, which begins when it will.
    state_since_ = Generation{UINT64_MAX};
  }
  if (worker->IsMember()) {
    Update(*worker, [](Worker& w) { w.done = false; });
    if (world_.closed && In<Running>() != nullptr) {
      // Its world is broken, which did not matter while all were done.
      BreakWorld();
    } else if (!worker->formed && In<Running>() != nullptr) {
      Arm(TimerKind::kFormed, world_.generation.value, kFormedTime);
    }
  } else if (worker->stage == Stage::kEpilogue) {
    // Its world has gone on without it: it waits for the next one, as the youngest.
    Update(*worker, [](Worker& w) {
      w.stage = Stage::kWarm;
      w.done = false;
      w.returned = true;
      w.since = Generation{};
    });
    for (Epilogue& epilogue : epilogues_) {
      epilogue.present.erase(worker->id);
    }
  }
  Because(NameOf(*worker) + " has entered elastic::run again");
  todo_.replan = todo_.reconsider = todo_.judge_silent = true;
}

void Membership::On(const WorkerBye& event) {
  Worker* worker = Find(event.worker);
  if (worker == nullptr || worker->bye || worker->stage == Stage::kPlanned) {
    return;
  }
  Update(*worker, [](Worker& w) { w.bye = true; });
  if (worker->done || In<Ending>() != nullptr || worker->stage == Stage::kDrained ||
      worker->stage == Stage::kDismissed || worker->stage == Stage::kLost) {
    return;
  }
  Arm(TimerKind::kGrace, worker->id.value, options_.grace);
  Lose(*worker, "", Kill::kNone);
}

// Rank 0 waits in shutdown() until nobody of its world needs it any more.
void Membership::ReleaseRank0() {
  const auto release = [this](Worker& worker) {
    if (!std::exchange(worker.released, true)) {
      Emit(Release{{worker.id}});
    }
  };
  Worker* rank0 = world_.members.empty() ? nullptr : Find(world_.members.front());
  if (rank0 != nullptr && rank0->IsMember() && rank0->done) {
    const bool alone = tally_.present - (rank0->bye ? 0 : 1) == 0;
    if (alone && (rank0->bye || world_.members.size() > 1)) {
      release(*rank0);
    }
  }
  for (Epilogue& epilogue : epilogues_) {
    std::erase_if(epilogue.present, [this](Incarnation id) {
      const Worker* worker = Find(id);
      return worker == nullptr || worker->bye || worker->stage != Stage::kEpilogue;
    });
    Worker* waiting = Find(epilogue.rank0);
    if (epilogue.present.empty() && waiting != nullptr && waiting->stage == Stage::kEpilogue) {
      release(*waiting);
    }
  }
}

void Membership::On(const StopRequested& event) {
  if (In<Ending>() != nullptr) {
    Because("told to stop at once");
    ForceAll();
    return;
  }
  const bool all_done = Closing() && tally_.at_work == 0;
  EndJob({all_done ? 0 : kExitSignalBase + event.signal,
          "stopped by " + SignalText(event.signal) + " after " + SecondsSinceStart(now_),
          std::nullopt});
}

void Membership::On(const TimerFired& event) {
  // A timer that was cancelled may have been on its way already.
  if (armed_.erase(event.timer) > 0) {
    OnTimer(event.timer.kind, event.timer.subject);
  }
}

void Membership::OnTimer(TimerKind kind, uint64_t subject) {
  switch (kind) {
    case TimerKind::kStart:
      return OnStartTimeout();
    case TimerKind::kElastic:
      return OnElasticTimeout();
    case TimerKind::kLossWindow:
      return OnLossWindow();
    case TimerKind::kSettle:
      settled_ = todo_.reconsider = true;
      return;
    case TimerKind::kFormed:
      return OnFormedTimeout();
    case TimerKind::kSuspect:
      return OnSuspectTimeout();
    case TimerKind::kBackoff:
      todo_.replan = true;
      return;
    case TimerKind::kGrace:
      return OnGraceOver(Incarnation{subject});
    case TimerKind::kFinish:
      return OnFinishTimer();
    case TimerKind::kRemoval:
      if (const auto name = host_order_.find(subject); name != host_order_.end()) {
        hosts_.at(name->second).removal_due = true;
        todo_.reconsider = true;
      }
      return;
    case TimerKind::kSilence:
      todo_.judge_silent = true;
      return;
  }
}

void Membership::OnLossWindow() {
  if (Running* running = In<Running>()) {
    running->window = false;
    if (last_failure_.has_value()) {
      Because(Describe(*last_failure_));  // Told to the members with the order to form anew.
    }
    NextWorld(Change::kLoss);
  } else if (Asking* asking = In<Asking>()) {
    asking->window = false;
    todo_.reconsider = true;
  }
}

void Membership::OnFormedTimeout() {
  if (const Running* running = In<Running>(); running != nullptr && running->window) {
    return;  // This world is over; the next one is a moment away.
  }
  const std::vector<Incarnation> members = LivingMembers();
  const bool silent = std::any_of(members.begin(), members.end(), [this](Incarnation id) {
    const Worker& worker = *Find(id);
    return !worker.formed && !worker.done && Excused(worker);
  });
  if (silent) {
    // Whoever else has not formed may wait for it, and so be in no fault.
    Arm(TimerKind::kFormed, world_.generation.value, kFormedTime);
    return;
  }
  // If nobody has formed, it says nothing about who is at fault, and all would be lost for one.
  const bool nobody = tally_.unformed == tally_[Stage::kMember] && tally_.unformed > 1;
  if (nobody && ++failed_formations_ < kFormationsToFail) {
    Because("nobody has formed the world: once more");
    NextWorld(Change::kLoss);
    return;
  }
  for (const Incarnation id : members) {
    Worker& worker = *Find(id);
    if (!worker.IsMember() || worker.formed || In<Running>() == nullptr) {
      continue;
    }
    if (!worker.done) {
      Lose(worker, "did not form the world within 5 s", Kill::kForce);
    } else if (tally_.at_work > 0) {
      BreakWorld();  // It will not form any more, and the others need not wait for it.
    }
  }
}

void Membership::OnSuspectTimeout() {
  Asking* asking = In<Asking>();
  if (asking == nullptr || asking->unanswered.empty()) {
    return;
  }
  if (!std::exchange(asking->overdue, true)) {
    Because("agents have not answered yet; the world stays revoked");
    Arm(TimerKind::kSuspect, world_.generation.value, kSuspectOverdueTime);
    return;
  }
  const auto unanswered = asking->unanswered;
  for (const Incarnation id : unanswered) {
    if (Excused(*Find(id))) {
      Arm(TimerKind::kSuspect, world_.generation.value, kSuspectOverdueTime);
      continue;
    }
    Emit(Refuse{id, "its agent does not say that it lives"});
    Lose(*Find(id), "was lost: its agent did not say that it lives", Kill::kForce);
    if (In<Ending>() != nullptr) {
      return;
    }
  }
}

// SIGTERM when the grace is over, SIGKILL when another one is.
void Membership::OnGraceOver(Incarnation id) {
  Worker* worker = Find(id);
  if (worker == nullptr) {
    return;
  }
  if (Excused(*worker)) {
    // It has not heard what it is to do.
    Arm(TimerKind::kGrace, id.value, std::max(options_.grace, kReturnTime));
    return;
  }
  Because("the grace of worker " + std::to_string(id.value) + " is over");
  if (!std::exchange(worker->terminated, true)) {
    Emit(KillWorker{id, false});
    Arm(TimerKind::kGrace, id.value, options_.grace);
  } else if (worker->IsMember() || worker->stage == Stage::kDrained) {
    // From now on nobody may count on it, as a holder least of all.
    Lose(*worker, "did not leave within its grace", Kill::kForce);
  } else {
    Emit(KillWorker{id, true});
  }
}

void Membership::OnElasticTimeout() {
  const Gathering* gathering = In<Gathering>();
  const bool started = gathering == nullptr || gathering->started;
  size_t have = gathering == nullptr ? Select().size()
                                     : static_cast<size_t>(tally_[Stage::kWarm] - SilentWarm());
  uint32_t need = Need();
  if (!started) {
    have = ListedSlots(/*usable_only=*/true);
    need = options_.np_start;
  } else if (gathering != nullptr && have >= need) {
    Form(Select());
    return;
  }
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(options_.elastic_timeout).count();
  const std::string cause = "waited " + std::to_string(seconds) + " s for slots: have " +
                            std::to_string(have) + ", need " + std::to_string(need) +
                            MissingHosts();
  EndJob({kExitElasticTimeout, cause, last_failure_}, last_failed_);
}

// From here on processes are only ended. `decider` is the worker whose exit code the job takes, or
// names, and which may not have arrived yet. The world is not revoked: a worker that uses its grace
// to save something must not be torn out of it by an exception from a collective.
void Membership::EndJob(Verdict verdict, Incarnation decider) {
  if (In<Ending>() != nullptr || finished()) {
    return;
  }
  const auto armed = armed_;
  for (const TimerKey& timer : armed) {
    Cancel(timer.kind, timer.subject);
  }
  std::vector<Incarnation> planned;
  Ending ending{std::move(verdict), decider, false, 0};
  for (auto& [id, worker] : workers_) {
    if (worker.stage == Stage::kPlanned) {
      planned.push_back(id);
    } else if (worker.IsLiving()) {
      ending.stopped += id != decider ? 1 : 0;
      if (!std::exchange(worker.terminated, true)) {
        Emit(KillWorker{id, false});
      }
    }
  }
  for (const Incarnation id : planned) {
    Erase(id);
  }
  Because("the job ends");
  phase_ = std::move(ending);
  WarnOfSilentHosts();
  if (!workers_.empty()) {
    Arm(TimerKind::kFinish, 0, options_.grace);
  }
}

// Whoever sees the job wait should know for what.
void Membership::WarnOfSilentHosts() {
  std::string names;
  for (const auto& [number, name] : host_order_) {
    const Host& host = hosts_.at(name);
    if (host.agent == AgentState::kSuspected && !host.occupants.empty()) {
      names += (names.empty() ? "" : ", ") + name.value;
    }
  }
  if (!names.empty()) {
    Emit(Warn{"the job ends once the processes on " + names +
              ", which cannot be reached, have surely ended by themselves (--driver-grace)"});
  }
}

void Membership::ForceAll() {
  const bool again = std::exchange(In<Ending>()->forced, true);
  for (const auto& [id, worker] : workers_) {
    Emit(KillWorker{id, true});
  }
  // Impatience does not put the end off.
  if (!again) {
    Arm(TimerKind::kFinish, 0, options_.grace);
  }
}

void Membership::OnFinishTimer() {
  const Ending* ending = In<Ending>();
  if (ending != nullptr && !ending->forced) {
    ForceAll();
  } else if (ending != nullptr) {
    Finish();
  }
}

void Membership::EndIfNothingIsLeft() {
  if (finished()) {
    return;
  }
  if (In<Ending>() != nullptr) {
    if (workers_.empty()) {
      Finish();
    }
    return;
  }
  const bool done = Closing() && tally_[Stage::kMember] == 0 && tally_[Stage::kEpilogue] == 0 &&
                    tally_[Stage::kWarm] == 0;
  const Gathering* gathering = In<Gathering>();
  const bool quiet =
      gathering != nullptr && !quiet_.empty() && workers_.empty() && !Armed(TimerKind::kBackoff, 0);
  if (quiet || (done && departed_.with_0 > 0)) {
    EndJob({0, "all workers are done", std::nullopt});
  } else if (done) {
    EndJob({kExitFailure, "no worker that was done has exited with 0", last_failure_});
  } else {
    return;
  }
  EndIfNothingIsLeft();
}

void Membership::Finish() {
  const Ending ending = std::move(*In<Ending>());
  for (const auto& [name, host] : hosts_) {
    if (host.agent != AgentState::kNone) {
      Emit(StopAgent{name});
    }
  }
  Cancel(TimerKind::kFinish, 0);
  FinishJob finish{ending.verdict.code, ending.verdict.cause};
  if (const auto& failure = ending.verdict.failure) {
    finish.code = finish.code != 0 ? finish.code : CodeOf(*failure);
    const bool is_cause = finish.cause.empty();
    finish.cause += (is_cause ? "" : "; the last failure: ") + Describe(*failure);
    if (is_cause && ending.stopped > 0) {
      finish.cause += "; " + std::to_string(ending.stopped) + " other worker" +
                      (ending.stopped == 1 ? " was" : "s were") + " stopped because of it";
    }
  }
  Emit(std::move(finish));
  phase_ = Finished{};
}

}  // namespace muster::launcher
