// From the first slots to the first world, and arrivals at any time (rules 2 and 5).

#include <algorithm>

#include "launcher/core/membership.h"

namespace muster::launcher {

// Waits until the -np slots are listed.
void Membership::CheckStart() {
  Gathering* gathering = In<Gathering>();
  if (gathering == nullptr || gathering->started || !discovered_) {
    return;
  }
  const uint32_t have = ListedSlots(/*usable_only=*/true);
  if (have >= options_.np_start) {
    gathering->started = true;
    Cancel(TimerKind::kElastic, 0);
    Because("the slots to start with are there");
    return;
  }
  const std::string counts =
      "have " + std::to_string(have) + ", need " + std::to_string(options_.np_start);
  if (!options_.elastic) {
    EndJob({kExitUsage, "not enough slots on the given hosts: " + counts, std::nullopt});
    return;
  }
  WarnOnce("waiting for slots: " + counts);
  if (!Armed(TimerKind::kElastic, 0)) {
    Arm(TimerKind::kElastic, 0, options_.elastic_timeout);
  }
}

void Membership::On(const WorkerStarted& event) {
  const Worker* worker = Find(event.worker);
  if (worker != nullptr) {
    Because(NameOf(*worker) + " runs as pid " + std::to_string(event.pid));
  }
}

void Membership::On(const SpawnFailed& event) {
  Worker* worker = Find(event.worker);
  if (worker == nullptr || worker->stage == Stage::kPlanned) {
    return;
  }
  if (In<Ending>() == nullptr && worker->stage == Stage::kSpawned) {
    Emit(Warn{NameOf(*worker) + " could not be started: " + event.message});
    Lose(*worker, "could not be started: " + event.message, Kill::kNone);
    RecordExit(*worker, kExitNotStarted, 0);
  }
  Erase(event.worker);
}

void Membership::On(const WorkerJoined& event) {
  Worker* worker = Find(event.worker);
  if (worker == nullptr || In<Ending>() != nullptr) {
    return;
  }
  if (worker->stage == Stage::kDismissed) {
    Emit(Release{{event.worker}});
    return;
  }
  if (worker->stage != Stage::kSpawned) {
    return;
  }
  any_joined_ = true;
  worker->addresses = event.addresses;
  RevokeQuietSuccesses();
  if (const Gathering* gathering = In<Gathering>()) {
    Update(*worker, [](Worker& w) { w.stage = Stage::kWarm; });
    reconsider_ |= gathering->late || tally_.first_attempts == 0;
    return;
  }
  if (In<Ending>() != nullptr) {
    return;
  }
  Update(*worker, [](Worker& w) { w.stage = Stage::kJoined; });
  if (placed_for_ != world_.generation) {
    SetProvisionalPlaces();
  }
  Emit(Admit{worker->id, worker->provisional});
  Because(NameOf(*worker) + " is admitted as a newcomer");
}

// The world that is forming goes on with the addresses that it was given; the next one has these.
void Membership::On(const WorkerListening& event) {
  if (Worker* worker = Find(event.worker)) {
    worker->addresses = event.addresses;
  }
}

void Membership::On(const WorkerWarm& event) {
  Worker* worker = Find(event.worker);
  if (worker == nullptr || worker->stage != Stage::kJoined || In<Ending>() != nullptr) {
    return;
  }
  Update(*worker, [](Worker& w) { w.stage = Stage::kWarm; });
  Because(NameOf(*worker) + " is warm");
  settled_ = false;
  if (Arriving() > 0) {
    Arm(TimerKind::kSettle, 0, kSettleTime);
  } else {
    Cancel(TimerKind::kSettle, 0);
  }
  reconsider_ = true;
}

void Membership::TryFirstWorld() {
  const Gathering& gathering = *In<Gathering>();
  const bool complete = tally_.first_attempts == 0;
  if (!gathering.started || !(complete || gathering.late)) {
    return;
  }
  const int64_t warm = tally_[Stage::kWarm];
  if (warm >= Need()) {
    Because(complete ? "every slot is warm or has failed" : "the start timeout is over");
    Form(Select());
    return;
  }
  // Workers that have not called init() may be programs that never will, so they alone start no
  // clock. Once one has, or nobody is on the way, the others are missing.
  if ((warm > 0 || (Arriving() == 0 && quiet_.empty())) && !Armed(TimerKind::kElastic, 0)) {
    Arm(TimerKind::kElastic, 0, options_.elastic_timeout);
    WarnOnce("waiting for workers: have " + std::to_string(warm) + ", need " +
             std::to_string(Need()));
  }
}

// A worker outside the world has failed.
void Membership::FailArrival(const Worker& worker) {
  reconsider_ = true;
  if (In<Gathering>() != nullptr && !any_joined_ && Arriving() == 0) {
    JudgeHopelessStart(worker.id);
  }
}

// Nobody was ever warm. A program that fails on every slot, twice, will fail for ever.
void Membership::JudgeHopelessStart(Incarnation last) {
  for (const auto& [name, host] : hosts_) {
    for (uint32_t index = 0; index < host.listed; ++index) {
      const SlotId slot{name, index};
      if (blame_.FailuresOf(slot) < kHopelessFailures && !quiet_.contains(slot)) {
        return;
      }
    }
  }
  EndJob({0, "no worker could start", last_failure_}, last);
}

// One worker has called init(), so the program is one that does: workers that ended with 0 before
// they called it have failed after all.
void Membership::RevokeQuietSuccesses() {
  const std::set<SlotId> slots = std::move(quiet_);
  quiet_.clear();
  for (const SlotId& slot : slots) {
    Failure failure;
    failure.who =
        "the worker on slot " + std::to_string(slot.index) + " of host " + slot.host.value;
    failure.how = "exited with code 0 without calling init(), which others did";
    failure.at = now_;
    blame_.WorkerFailed(slot, now_);
    last_failure_ = failure;
    last_failed_ = {};
    replan_ = true;
    if (!options_.elastic) {
      EndJob({0, "", failure});
      return;
    }
  }
}

}  // namespace muster::launcher
