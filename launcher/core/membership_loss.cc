// Failures, exits, and the question that PeerLost asks (rules 3, 4, 9 and docs/membership.md).

#include <algorithm>
#include <utility>

#include "launcher/core/membership.h"

namespace muster::launcher {

void Membership::On(const WorkerLost& event) {
  Worker* worker = Find(event.worker);
  if (worker == nullptr || !worker->IsLiving() || worker->stage == Stage::kPlanned ||
      In<Ending>() != nullptr) {
    return;
  }
  if (worker->done) {
    // Its exit code says whether it ended well; whatever it was, it is to end now.
    Emit(KillWorker{worker->id, true});
    return;
  }
  const std::string how = event.kind == LossKind::kFrozen    ? "was frozen"
                          : event.kind == LossKind::kSilent  ? "was silent"
                          : event.kind == LossKind::kStalled ? "was stalled"
                                                             : "";
  const bool detail = !how.empty() && !event.evidence.empty();
  Lose(*worker, how + (detail ? " (" + event.evidence + ")" : ""), Kill::kForce);
}

// Takes a living worker out of the job. Its record stays until its process is gone.
void Membership::Lose(Worker& worker, const std::string& how, Kill kill, Fault fault) {
  if (In<Ending>() != nullptr) {
    return;  // The loss of another one has just ended the job: this one is ended anyway.
  }
  const Stage stage = worker.stage;
  Because(NameOf(worker) + (how.empty() ? " was lost" : " " + how));
  if (kill == Kill::kForce) {
    Emit(KillWorker{worker.id, true});
  } else if (kill == Kill::kTerm) {
    Emit(KillWorker{worker.id, false});
    worker.terminated = true;
    Arm(TimerKind::kGrace, worker.id.value, options_.grace);
  }
  worker.failure = Failure{NameOf(worker), how, now_, std::nullopt, 0};
  Update(worker, [](Worker& w) { w.stage = Stage::kLost; });
  todo_.reconsider = true;
  if (worker.done) {
    ++departed_.lost;
    if (stage == Stage::kMember && !worker.bye) {
      BreakWorld();
    }
    return;
  }
  if (stage == Stage::kDismissed || stage == Stage::kDrained) {
    worker.failure.reset();
    return;
  }
  if (!worker.draining && fault != Fault::kNone) {
    last_failure_ = worker.failure;
    last_failed_ = worker.id;
  }
  if (!options_.elastic) {
    EndJob({0, "", worker.failure}, worker.id);
    return;
  }
  if (!worker.draining && fault == Fault::kOwn) {
    Blame(worker);
  }
  if (In<Ending>() != nullptr) {
    return;
  }
  if (stage != Stage::kMember) {
    FailArrival(worker);
  } else {
    BreakWorld();
  }
  StopAsking(worker.id);
}

void Membership::StopAsking(Incarnation id) {
  if (Asking* asking = In<Asking>()) {
    asking->unanswered.erase(id);
  }
}

void Membership::Blame(const Worker& worker) {
  blame_.WorkerFailed(worker.slot, now_);
  if (options_.blame_host) {
    LoseSiblings(worker.slot.host);
  }
}

void Membership::LoseSiblings(const HostId& name) {
  const auto occupants = hosts_.at(name).occupants;
  for (const auto& [index, id] : occupants) {
    Worker* worker = Find(id);
    if (worker == nullptr) {
      continue;  // The loss of another one has ended the job, and with it all plans.
    }
    if (worker->stage == Stage::kPlanned) {
      Erase(id);
    } else if (worker->IsLiving() && !worker->done) {
      Lose(*worker, "was stopped, for its host is set aside", Kill::kTerm, Fault::kNone);
    }
  }
}

// A member is out of reach without a goodbye: whoever does something with it would wait.
void Membership::BreakWorld() {
  Running* running = In<Running>();
  Asking* asking = In<Asking>();
  if (running == nullptr && asking == nullptr) {
    return;
  }
  for (auto& [pair, times] : breaks_) {
    times.erase(world_.generation);  // Whose links broke may have met the one that is lost.
  }
  bool& window = running != nullptr ? running->window : asking->window;
  if (!std::exchange(window, true)) {
    Arm(TimerKind::kLossWindow, 0, kLossWindowTime);
    todo_.reconsider = true;
  }
}

// The members hear at once that their world is broken; what comes next waits for further losses.
void Membership::RevokeBroken() {
  if (CloseWorld(Change::kLoss)) {
    RevokeWorld();
  }
}

void Membership::On(const WorkerExited& event) {
  Worker* worker = Find(event.worker);
  if (worker == nullptr) {
    return;
  }
  switch (worker->stage) {
    case Stage::kLost:
      RecordExit(*worker, event.code, event.signal);
      Erase(event.worker);
      break;
    case Stage::kPlanned:
    case Stage::kDismissed:
      Erase(event.worker);
      break;
    case Stage::kDrained:
      Erase(event.worker);
      todo_.reconsider = true;
      break;
    default:
      if (In<Ending>() != nullptr) {
        Erase(event.worker);
      } else if (worker->done) {
        ExitedWhenDone(*worker, event);
      } else {
        ExitedUnexpectedly(*worker, event);
      }
  }
  Because("worker " + std::to_string(event.worker.value) + " exited with code " +
          std::to_string(event.code));
}

void Membership::ExitedWhenDone(Worker& worker, const WorkerExited& event) {
  const Failure failure{NameOf(worker), "", now_, event.code, event.signal};
  const bool silent = worker.IsMember() && !worker.bye;
  if (event.code == 0) {
    ++departed_.with_0;
  }
  Erase(worker.id);
  if (event.code != 0) {
    EndJob({0, "", failure});
    return;
  }
  if (silent && tally_.at_work > 0) {
    BreakWorld();
  }
  todo_.reconsider = true;
}

void Membership::ExitedUnexpectedly(Worker& worker, const WorkerExited& event) {
  const bool quiet = worker.stage == Stage::kSpawned && In<Gathering>() != nullptr &&
                     event.code == 0 && !any_joined_;
  if (quiet) {
    quiet_.insert(worker.slot);
    todo_.reconsider = true;
  } else {
    Lose(worker, "", Kill::kNone);
    RecordExit(worker, event.code, event.signal);
  }
  Erase(event.worker);
}

// The code of a loss arrives after the loss; it belongs into every message that names it.
void Membership::RecordExit(Worker& worker, int code, int signal) {
  if (!worker.failure.has_value()) {
    return;
  }
  worker.failure->code = code;
  worker.failure->signal = signal;
  if (last_failed_ == worker.id) {
    last_failure_ = worker.failure;
  }
  Ending* ending = In<Ending>();
  if (ending != nullptr && ending->decider == worker.id) {
    ending->verdict.failure = worker.failure;
  }
}

void Membership::Erase(Incarnation id) {
  Worker& worker = *Find(id);
  tally_.Add(worker, -1);
  hosts_.at(worker.slot.host).occupants.erase(worker.slot.index);
  Cancel(TimerKind::kGrace, id.value);
  StopAsking(id);
  workers_.erase(id);
  todo_.replan = true;
}

void Membership::On(const PeerLost& event) {
  const bool current = event.generation == world_.generation &&
                       (In<Running>() != nullptr || In<Asking>() != nullptr);
  const Worker* reporter = Find(event.reporter);
  if (!current || reporter == nullptr || !reporter->IsMember() || reporter->left) {
    return;
  }
  const std::vector<Incarnation> suspects = SuspectsOf(event);
  if (suspects.empty()) {
    Because("a broken link to a member that has left or is lost");
    return;
  }
  if (event.stalled) {
    for (const Incarnation id : suspects) {
      Lose(*Find(id), "was stalled (" + event.evidence + ")", Kill::kForce);
    }
    return;
  }
  if (!world_.revoked) {
    RecordBreaks(suspects, event.reporter);  // Else those who have heard of it have cut the link.
  }
  const Running* running = In<Running>();
  if (running == nullptr || !running->window) {
    Ask(suspects, event);
  }
}

// A member that was told to drain may be on its way out; what is said of it counts if it stays.
std::vector<Incarnation> Membership::SuspectsOf(const PeerLost& event) {
  const Worker& reporter = *Find(event.reporter);
  const bool nobody_else = std::all_of(event.suspect_ranks.begin(),
                                       event.suspect_ranks.end(),
                                       [&](uint32_t rank) { return rank == reporter.rank; });
  if (nobody_else) {
    // It left the generation by itself, or cannot say why an operation failed: broken all the same.
    return reporter.IsOpen() && !reporter.bye ? std::vector{reporter.id}
                                              : std::vector<Incarnation>{};
  }
  std::vector<Incarnation> suspects;
  for (const uint32_t rank : event.suspect_ranks) {
    const Worker* worker = rank < world_.members.size() ? Find(world_.members[rank]) : nullptr;
    const bool suspect =
        worker != nullptr && worker->IsOpen() && !worker->bye && worker->id != event.reporter;
    if (suspect && worker->drain_ordered) {
      world_.unheard.insert_or_assign(worker->id, event);
    } else if (suspect) {
      suspects.push_back(worker->id);
    }
  }
  return suspects;
}

void Membership::RecordBreaks(const std::vector<Incarnation>& suspects, Incarnation reporter) {
  for (auto pair = breaks_.begin(); pair != breaks_.end();) {
    std::erase_if(pair->second,
                  [this](const auto& entry) { return now_ - entry.second > kBreaksMemory; });
    pair = pair->second.empty() ? breaks_.erase(pair) : std::next(pair);
  }
  for (const Incarnation suspect : suspects) {
    // Both ends report the same break: it counts once per generation.
    if (suspect != reporter) {
      breaks_[std::minmax(suspect, reporter)].emplace(world_.generation, now_);
    }
  }
}

// The generation is broken, so it is revoked at once; whether anyone is dead, the agents say.
void Membership::Ask(const std::vector<Incarnation>& suspects, const PeerLost& event) {
  if (In<Running>() != nullptr) {
    if (!CloseWorld(Change::kLoss)) {
      return;
    }
    Because("a link of world " + std::to_string(world_.generation.value) + " broke");
    RevokeWorld();
    Cancel(TimerKind::kFormed, world_.generation.value);
    phase_ = Asking{};
  }
  Asking& asking = *In<Asking>();
  asking.evidence = event.evidence;
  AskAgent question{world_.generation, {}};
  for (const Incarnation id : suspects) {
    if (asking.reporters[id].empty()) {
      question.suspects.push_back(id);
      asking.unanswered.insert(id);
    }
    asking.reporters[id].insert(event.reporter);
  }
  if (!question.suspects.empty()) {
    asking.overdue = false;
    Emit(std::move(question));
    Arm(TimerKind::kSuspect, world_.generation.value, kSuspectTime);
  }
}

void Membership::On(const SuspectAnswered& event) {
  Asking* asking = In<Asking>();
  if (asking == nullptr || event.generation != world_.generation ||
      !asking->unanswered.contains(event.worker)) {
    return;
  }
  Worker& worker = *Find(event.worker);
  if (event.alive) {
    Because(NameOf(worker) + " is alive");
    asking->unanswered.erase(event.worker);
  } else {
    Lose(worker, "", Kill::kForce);
  }
  todo_.reconsider = true;
}

void Membership::ConcludeAsking() {
  const Asking& asking = *In<Asking>();
  if (asking.window || !asking.unanswered.empty()) {
    return;
  }
  if (!options_.elastic) {
    EndJob({kExitFailure, "a link between workers broke: " + asking.evidence, std::nullopt});
    return;
  }
  ExpelRepeated();
  if (!In<Asking>()->window) {
    NextWorld(Change::kLoss);
  }
}

// A pair that breaks again and again while both live would stop the job for ever.
void Membership::ExpelRepeated() {
  const auto breaks = breaks_;
  for (const auto& [pair, times] : breaks) {
    Worker* low = Find(pair.first);
    Worker* high = Find(pair.second);
    if (times.size() < kBreaksToExpel || low == nullptr || high == nullptr || !low->IsMember() ||
        !high->IsMember()) {
      continue;
    }
    const Asking& asking = *In<Asking>();
    const auto reports = [&asking](const Worker* worker) {
      const auto found = asking.reporters.find(worker->id);
      return found == asking.reporters.end() ? 0 : found->second.size();
    };
    Worker* expelled =
        std::pair(reports(low), low->rank) < std::pair(reports(high), high->rank) ? high : low;
    const Worker* other = expelled == low ? high : low;
    breaks_.erase(pair);
    Emit(Refuse{expelled->id, "its links break again and again"});
    Lose(*expelled,
         "was expelled, for its link to rank " + std::to_string(other->rank) +
             " broke three times in a minute",
         Kill::kForce);
  }
}

}  // namespace muster::launcher
