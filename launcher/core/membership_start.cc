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
    if (!options_.elastic) {
      ArmStart();
    }
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
    todo_.reconsider |= gathering->late || tally_.first_attempts == 0;
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
  todo_.reconsider = true;
}

// A static job has all its workers or none, so for it the time runs from the beginning; elastic
// jobs go on without the hosts that cannot be reached, and count from the first worker.
void Membership::ArmStart() {
  const Gathering* gathering = In<Gathering>();
  if (gathering != nullptr && !gathering->late && !Armed(TimerKind::kStart, 0)) {
    Arm(TimerKind::kStart, 0, options_.start_timeout);
  }
}

void Membership::OnStartTimeout() {
  Gathering* gathering = In<Gathering>();
  if (gathering == nullptr) {
    return;
  }
  gathering->late = todo_.reconsider = true;
  const size_t started =
      static_cast<size_t>(tally_[Stage::kSpawned] + tally_[Stage::kWarm]) + quiet_.size();
  if (!options_.elastic && started < options_.np_start) {
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(options_.start_timeout).count();
    EndJob({kExitFailure,
            "not all workers could be started within " + std::to_string(seconds) + " s" +
                MissingHosts(),
            std::nullopt});
  }
}

// Those on a silent host are neither warm nor failed: that shows when it answers or is lost.
void Membership::TryFirstWorld() {
  const Gathering& gathering = *In<Gathering>();
  const int64_t silent = SilentWarm();
  const bool complete = tally_.first_attempts == 0 && silent == 0;
  if (gathering.started && (complete || gathering.late) &&
      tally_[Stage::kWarm] - silent >= Need()) {
    Because(complete ? "every slot is warm or has failed" : "the start timeout is over");
    Form(Select());
  }
}

// Bounds the wait for the first world. Workers that have not called init() may be programs that
// never will, so they alone start no clock. Once one has, or none runs, the others are missing.
void Membership::WatchStart() {
  const Gathering* gathering = In<Gathering>();
  if (gathering == nullptr || !gathering->started || Armed(TimerKind::kElastic, 0)) {
    return;
  }
  const bool tried = gathering->late || (options_.elastic && tally_.first_attempts == 0);
  if (tried && (tally_[Stage::kWarm] > 0 || tally_[Stage::kSpawned] == 0)) {
    Arm(TimerKind::kElastic, 0, options_.elastic_timeout);
    const int64_t have = tally_[Stage::kWarm] - SilentWarm();
    if (have < static_cast<int64_t>(Need())) {
      WarnOnce("waiting for workers: have " + std::to_string(have) + ", need " +
               std::to_string(Need()));
    }
  }
}

// A worker outside the world has failed. If nobody was ever warm, a program that fails on every
// slot, twice, will fail for ever.
void Membership::FailArrival(const Worker& worker) {
  todo_.reconsider = true;
  if (In<Gathering>() == nullptr || any_joined_ || Arriving() > 0) {
    return;
  }
  for (const auto& [name, host] : hosts_) {
    for (uint32_t index = 0; index < host.listed; ++index) {
      const SlotId slot{name, index};
      if (blame_.FailuresOf(slot) < kHopelessFailures && !quiet_.contains(slot)) {
        return;
      }
    }
  }
  EndJob({0, "no worker could start", last_failure_}, worker.id);
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
    todo_.replan = true;
    if (!options_.elastic) {
      EndJob({0, "", failure});
      return;
    }
  }
}

}  // namespace muster::launcher
