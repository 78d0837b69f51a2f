// Choosing the members of the next world, forming it, and who holds State (rules 3, 6, 7, 8, 11).

#include <algorithm>
#include <limits>
#include <utility>

#include "launcher/core/membership.h"

namespace muster::launcher {
namespace {

void SortByAge(std::vector<const Worker*>& workers) {
  std::sort(workers.begin(), workers.end(), [](const Worker* a, const Worker* b) {
    return std::pair(a->since, a->id) < std::pair(b->since, b->id);
  });
}

}  // namespace

uint32_t Membership::Need() const {
  if (Closing()) {
    return 1;
  }
  return std::max(1U, options_.elastic ? options_.np_min : options_.np_start);
}

uint32_t Membership::Bound() const {
  if (!options_.elastic) {
    return options_.np_start;
  }
  return options_.np_max.value_or(std::numeric_limits<uint32_t>::max());
}

// Members that stay, then warm workers, oldest first, up to the bound; then what rule 6 demands: a
// holder of the newest commit, and enough members that are asked to leave to keep np_min.
std::vector<Incarnation> Membership::Select() const {
  std::vector<const Worker*> chosen;
  std::vector<const Worker*> warm;
  std::vector<const Worker*> leaving;
  for (const auto& [id, worker] : workers_) {
    if (worker.IsMember() && !worker.done) {
      (worker.draining ? leaving : chosen).push_back(&worker);
    } else if (worker.stage == Stage::kDrained) {
      leaving.push_back(&worker);
    } else if (worker.stage == Stage::kWarm && (!Closing() || worker.returned) && !Silent(worker)) {
      warm.push_back(&worker);
    }
  }
  SortByAge(chosen);
  SortByAge(leaving);
  for (const Worker* worker : warm) {
    if (chosen.size() < Bound()) {
      chosen.push_back(worker);
    }
  }
  AddHolder(chosen, leaving);
  for (const Worker* worker : leaving) {
    const bool may_stay = worker->IsMember() && !hosts_.at(worker->slot.host).removal_due;
    if (!Closing() && chosen.size() < options_.np_min && may_stay &&
        std::find(chosen.begin(), chosen.end(), worker) == chosen.end()) {
      chosen.push_back(worker);
    }
  }
  std::vector<Incarnation> ids;
  ids.reserve(chosen.size());
  for (const Worker* worker : chosen) {
    ids.push_back(worker->id);
  }
  return ids;
}

void Membership::AddHolder(std::vector<const Worker*>& chosen,
                           const std::vector<const Worker*>& leaving) const {
  Generation newest;
  const auto see = [&newest](const Worker* worker) { newest = std::max(newest, worker->held_in); };
  std::for_each(chosen.begin(), chosen.end(), see);
  std::for_each(leaving.begin(), leaving.end(), see);
  const bool held = std::any_of(chosen.begin(), chosen.end(), [&](const Worker* worker) {
    return worker->held_in == newest;
  });
  if (newest.value == 0 || (held && needed_.value == 0)) {
    return;
  }
  const auto holder = std::find_if(leaving.begin(), leaving.end(), [&](const Worker* worker) {
    return needed_.value != 0 ? worker->id == needed_ : worker->held_in == newest;
  });
  if (holder == leaving.end()) {
    return;
  }
  if (chosen.size() >= Bound()) {
    chosen.pop_back();
  }
  chosen.push_back(*holder);
}

// The one way from a world to the next: counts the change, then forms or holds.
void Membership::NextWorld(Change change) {
  const std::vector<Incarnation> chosen = Select();
  if (!CloseWorld(Classify(change, chosen))) {
    return;
  }
  if (chosen.empty() && Closing() && tally_.at_work == 0) {
    // All that are left are Done: there is nothing to form. What they still do together may wait
    // for the lost one, so it is ended.
    RevokeWorld();
    phase_ = Running{};
    return;
  }
  const bool held = std::any_of(
      chosen.begin(), chosen.end(), [this](Incarnation id) { return Find(id)->held_in.value > 0; });
  if (state_since_ && !held) {
    EndForLostState();
  } else if (chosen.size() < Need()) {
    EnterHold();
  } else {
    Form(chosen);
  }
}

void Membership::EndForLostState() {
  if (AllSetAside()) {
    EndForNoSlots();
    return;
  }
  EndJob({last_failure_.has_value() ? 0 : kExitStateLost,
          "the state is lost, for no worker that holds a commit is left",
          last_failure_},
         last_failed_);
}

Change Membership::Classify(Change change, const std::vector<Incarnation>& chosen) const {
  if (change != Change::kPlanned) {
    return change;
  }
  const std::set<Incarnation> next(chosen.begin(), chosen.end());
  const bool all_stay = std::all_of(world_.members.begin(),
                                    world_.members.end(),
                                    [&](Incarnation id) { return next.contains(id); });
  if (!all_stay) {
    return Change::kPlanned;
  }
  const auto added = static_cast<int64_t>(next.size() - world_.members.size());
  return added == 0                ? Change::kUnchanged
         : added <= resets_.refill ? Change::kRefill
                                   : Change::kPlanned;
}

// The end of the newest world, counted once. False if a limit ends the job. A world in which no
// elastic function has run is abandoned without being counted: its user has not seen it.
bool Membership::CloseWorld(Change change) {
  if (std::exchange(world_.closed, true) || !world_.synced) {
    return true;
  }
  resets_.last_by_loss = change == Change::kLoss;
  if (change == Change::kUnchanged || change == Change::kRefill || tally_.at_work == 0) {
    return true;
  }
  resets_.pending = true;
  ++resets_.all;
  resets_.by_loss += resets_.last_by_loss ? 1 : 0;
  const bool resets_over = options_.reset_limit && resets_.all > *options_.reset_limit;
  const bool losses_over = options_.failure_limit && resets_.by_loss > *options_.failure_limit;
  if (!resets_over && !losses_over) {
    return true;
  }
  const std::string what =
      resets_over
          ? "the limit of " + std::to_string(*options_.reset_limit) + " resets is reached"
          : "the limit of " + std::to_string(*options_.failure_limit) + " failures is reached";
  if (resets_.last_by_loss) {
    EndJob({kExitLimit, what, last_failure_}, last_failed_);
  } else {
    EndJob({kExitLimit, what + ": the world was to change again", std::nullopt});
  }
  return false;
}

void Membership::Form(const std::vector<Incarnation>& chosen) {
  const bool first = world_.generation.value == 0;
  const Generation generation{world_.generation.value + 1};
  const auto growth =
      static_cast<int64_t>(chosen.size()) - static_cast<int64_t>(world_.members.size());
  resets_.refill = growth >= 0 ? std::max<int64_t>(0, resets_.refill - growth)
                               : resets_.refill - (resets_.last_by_loss ? growth : 0);
  std::vector<Candidate> candidates;
  candidates.reserve(chosen.size());
  for (const Incarnation id : chosen) {
    candidates.push_back(CandidateOf(*Find(id)));
  }
  LeaveOut({chosen.begin(), chosen.end()});
  Cancel(TimerKind::kFormed, world_.generation.value);
  world_ = World{};
  world_.generation = generation;
  FormWorld form{generation, {}, std::exchange(resets_.pending, false)};
  for (const Candidate& candidate : InRankOrder(std::move(candidates))) {
    Worker& worker = *Find(candidate.worker);
    Update(worker, [&](Worker& w) {
      w.stage = Stage::kMember;
      w.since = candidate.since;
      w.rank = static_cast<uint32_t>(form.members.size());
      w.formed = w.left = w.drain_ordered = w.returned = false;
    });
    world_.members.push_back(worker.id);
    form.members.push_back({worker.id, worker.slot, worker.addresses});
  }
  needed_ = {};
  settled_ = false;
  for (const TimerKind kind :
       {TimerKind::kStart, TimerKind::kElastic, TimerKind::kLossWindow, TimerKind::kSettle}) {
    Cancel(kind, 0);
  }
  Cancel(TimerKind::kSuspect, generation.value - 1);
  Because("world " + std::to_string(generation.value) + " of " + std::to_string(chosen.size()));
  Emit(std::move(form));
  Arm(TimerKind::kFormed, generation.value, kFormedTime);
  phase_ = Running{};
  if (first) {
    AdmitLeftOut();
  }
  todo_.replan = todo_.reconsider = todo_.judge_silent = true;
}

void Membership::AdmitLeftOut() {
  first_world_at_ = now_;
  SetProvisionalPlaces();
  for (auto& [id, worker] : workers_) {
    if (worker.stage == Stage::kWarm) {
      Update(worker, [](Worker& w) { w.stage = Stage::kJoined; });
      Emit(Admit{id, worker.provisional});
    }
  }
}

// What becomes of the members that the next world does not take.
void Membership::LeaveOut(const std::set<Incarnation>& chosen) {
  Epilogue epilogue;
  std::vector<Incarnation> done;
  for (const Incarnation id : LivingMembers()) {
    if (chosen.contains(id)) {
      continue;
    }
    Worker& worker = *Find(id);
    worker.behind = true;
    if (worker.done) {
      if (worker.rank == 0) {
        epilogue.rank0 = id;
      } else if (!worker.bye) {
        epilogue.present.insert(id);
      }
      done.push_back(id);
      Update(worker, [](Worker& w) { w.stage = Stage::kEpilogue; });
    } else if (!worker.draining) {
      Update(worker, [](Worker& w) { w.stage = Stage::kWarm; });
    } else if (worker.IsHolder()) {
      Update(worker, [](Worker& w) { w.stage = Stage::kDrained; });
      if (!Armed(TimerKind::kGrace, id.value)) {
        Arm(TimerKind::kGrace, id.value, options_.grace);
      }
    } else {
      Dismiss(worker);
    }
  }
  if (!done.empty() && !world_.revoked) {
    // What they still do together would wait for those that go on without them.
    Emit(Revoke{world_.generation, std::move(done)});
  }
  if (epilogue.rank0.value != 0) {
    epilogues_.push_back(std::move(epilogue));
  }
}

void Membership::RevokeWorld() {
  const std::vector<Incarnation> members = LivingMembers();
  if (!std::exchange(world_.revoked, true) && !members.empty()) {
    Emit(Revoke{world_.generation, members});
  }
}

void Membership::EnterHold() {
  if (In<Holding>() == nullptr) {
    if (In<Running>() != nullptr) {
      RevokeWorld();
    }
    Cancel(TimerKind::kFormed, world_.generation.value);
    Cancel(TimerKind::kLossWindow, 0);
    phase_ = Holding{now_};
    Arm(TimerKind::kElastic, 0, options_.elastic_timeout);
    todo_.replan = true;
    const std::string counts =
        "have " + std::to_string(Select().size()) + ", need " + std::to_string(Need());
    Because("too few workers for a world: " + counts);
    Emit(Warn{"waiting for workers: " + counts});
  }
}

// Forms as soon as nobody else is on the way, or half a second after the last arrival.
void Membership::ReconsiderHold() {
  const bool lost = state_since_ && tally_.holders == 0;
  if (lost || Closing() || Arriving() == 0 || settled_) {
    NextWorld(Change::kLoss);
  } else if (!Armed(TimerKind::kSettle, 0) && Select().size() >= Need()) {
    Arm(TimerKind::kSettle, 0, kSettleTime);
  }
}

// What a worker says of its commits is true whatever has become of it and its generation meanwhile:
// above all, that State exists.
void Membership::LearnHeld(Worker& worker, const CommitId& held) {
  Update(worker, [&](Worker& w) {
    w.held = std::max(w.held, std::optional(held));
    w.held_in = std::max(w.held_in, Generation{held.generation});
  });
  todo_.judge_silent |= !silent_.empty();
  if (!state_since_) {
    state_since_ = Generation{held.generation};
    todo_.replan = todo_.reconsider = true;
    const Running* running = In<Running>();
    if (running != nullptr && !running->window && tally_.unformed == 0) {
      JudgeHolders();
    }
  }
}

void Membership::On(const WorkerFormed& event) {
  Worker* worker = Find(event.worker);
  if (worker == nullptr || In<Ending>() != nullptr) {
    return;
  }
  if (event.held.has_value()) {
    LearnHeld(*worker, *event.held);
  }
  if (!worker->IsMember() || event.generation != world_.generation || worker->formed) {
    return;
  }
  Update(*worker, [&](Worker& w) {
    w.formed = true;
    if (!event.held.has_value() && !world_.synced) {
      w.held_in = Generation{};
    }
  });
  const Running* running = In<Running>();
  if (tally_.unformed == 0 && running != nullptr) {
    Cancel(TimerKind::kFormed, world_.generation.value);
    failed_formations_ = 0;
    Because("all members have formed world " + std::to_string(world_.generation.value));
    if (!running->window) {
      JudgeHolders();
    }
  }
}

// Now that all members have said what they hold: is it the newest there is?
void Membership::JudgeHolders() {
  if (!state_since_) {
    return;
  }
  std::optional<CommitId> newest;
  Generation held_in;
  for (const Incarnation id : LivingMembers()) {
    const Worker& worker = *Find(id);
    held_in = std::max(held_in, worker.held_in);
    newest = std::max(newest, worker.held);
  }
  if (tally_[Stage::kDrained] > 0) {
    for (const auto& [id, worker] : workers_) {
      if (worker.stage == Stage::kDrained && worker.held > newest) {
        newest = worker.held;
        needed_ = id;
      }
    }
  }
  if (held_in.value == 0 || needed_.value != 0) {
    Because("the newest commit is outside the world");
    NextWorld(Change::kLoss);
    return;
  }
  // The sync begins now: any member may have the commit before the news of it is here.
  for (const Incarnation id : LivingMembers()) {
    Update(*Find(id), [&](Worker& w) { w.held_in = std::max(w.held_in, held_in); });
  }
}

void Membership::On(const WorkerLeft& event) {
  Worker* worker = Find(event.worker);
  if (worker == nullptr || In<Ending>() != nullptr) {
    return;
  }
  if (event.held.has_value()) {
    LearnHeld(*worker, *event.held);
  }
  if (!worker->IsMember() || event.generation != world_.generation || In<Running>() == nullptr) {
    return;
  }
  Update(*worker, [](Worker& w) { w.left = true; });
  Because("the members have come to a commit of world " + std::to_string(event.generation.value));
  todo_.reconsider |= tally_.open == 0;
}

void Membership::On(const WorkerSynced& event) {
  Worker* worker = Find(event.worker);
  if (worker == nullptr || In<Ending>() != nullptr) {
    return;
  }
  const bool current = event.generation == world_.generation && event.generation.value > 0;
  // A commit that a world has given itself: it begins from nothing, and nobody in it held anything.
  const bool anew = event.commit == CommitId{event.generation.value, 0};
  if (current && anew && state_since_ && *state_since_ < event.generation) {
    Because("world " + std::to_string(world_.generation.value) + " began from nothing");
    EndForLostState();
    return;
  }
  if (current && !std::exchange(world_.synced, true)) {
    // One has it all, so any member may have it already.
    for (const Incarnation id : LivingMembers()) {
      Update(*Find(id), [this](Worker& w) { w.held_in = world_.generation; });
    }
    Because("world " + std::to_string(world_.generation.value) + " runs");
  }
  worker->behind &= !current;
  LearnHeld(*worker, event.commit);
  if (current && worker->IsMember() && In<Ending>() == nullptr) {
    ReleaseDrained(event.commit);
  }
}

// A drained worker may go once a member of a later world has what it holds; without a commit to
// compare, all may.
void Membership::ReleaseDrained(const std::optional<CommitId>& commit) {
  if (tally_[Stage::kDrained] == 0) {
    return;
  }
  for (auto& [id, worker] : workers_) {
    if (worker.stage == Stage::kDrained && (!commit || !worker.held || *worker.held <= *commit)) {
      Dismiss(worker);
    }
  }
}

}  // namespace muster::launcher
