// What must hold between two steps. A violation is a bug here, never the fault of an input.

#include "common/check.h"
#include "launcher/core/membership.h"

namespace muster::launcher {

void Membership::CheckInvariants() const {
  Tally counted;
  std::map<SlotId, Incarnation> occupied;
  for (const auto& [id, worker] : workers_) {
    counted.Add(worker, 1);
    MUSTER_CHECK(id == worker.id && id.value < next_incarnation_, "an incarnation is out of range");
    MUSTER_CHECK(occupied.emplace(worker.slot, id).second, "two workers on one slot");
    const auto host = hosts_.find(worker.slot.host);
    MUSTER_CHECK(host != hosts_.end(), "a worker on a host that is forgotten");
    const auto occupant = host->second.occupants.find(worker.slot.index);
    MUSTER_CHECK(occupant != host->second.occupants.end() && occupant->second == id,
                 "a slot does not know its worker");
    MUSTER_CHECK(host->second.agent != AgentState::kNone, "a worker without an agent");
  }
  MUSTER_CHECK(counted == tally_, "the tally has drifted from the workers");

  std::set<Incarnation> seen;
  for (size_t rank = 0; rank < world_.members.size(); ++rank) {
    MUSTER_CHECK(seen.insert(world_.members[rank]).second, "a worker has two ranks");
    const Worker* worker = Find(world_.members[rank]);
    if (worker != nullptr && worker->IsMember()) {
      MUSTER_CHECK_EQ(static_cast<size_t>(worker->rank), rank);
      MUSTER_CHECK(worker->since <= world_.generation, "a member from the future");
    }
  }
  for (const auto& [id, worker] : workers_) {
    MUSTER_CHECK(!worker.IsMember() || seen.contains(id), "a member outside the newest world");
  }
  MUSTER_CHECK(world_.generation.value > 0 || world_.members.empty(), "members before a world");

  size_t occupants = 0;
  for (const auto& [name, host] : hosts_) {
    occupants += host.occupants.size();
    MUSTER_CHECK(host.listed <= host.allowed, "a listed slot is withdrawn");
    MUSTER_CHECK(host_order_.contains(host.number), "a host without a place in the order");
    MUSTER_CHECK_EQ(host.agent == AgentState::kSuspected, silent_.contains(name));
  }
  MUSTER_CHECK_EQ(occupants, workers_.size());
  MUSTER_CHECK_EQ(host_order_.size(), hosts_.size());
  MUSTER_CHECK(!todo_.Any(), "a step has left something undone");
  CheckWaits();
}

// Whatever is waited for, a timer or a process that is bound to report ends the wait.
void Membership::CheckWaits() const {
  if (const Running* running = In<Running>()) {
    MUSTER_CHECK(!running->window || Armed(TimerKind::kLossWindow, 0), "a loss is forgotten");
    MUSTER_CHECK(running->window || tally_.unformed == 0 || tally_.at_work == 0 ||
                     Armed(TimerKind::kFormed, world_.generation.value),
                 "formation has no deadline");
  }
  if (const Asking* asking = In<Asking>()) {
    MUSTER_CHECK(asking->window ? Armed(TimerKind::kLossWindow, 0)
                                : Armed(TimerKind::kSuspect, world_.generation.value),
                 "a question has no deadline");
  }
  if (In<Holding>() != nullptr) {
    MUSTER_CHECK(Armed(TimerKind::kElastic, 0), "a hold has no deadline");
  }
  if (In<Ending>() != nullptr) {
    MUSTER_CHECK(Armed(TimerKind::kFinish, 0), "the end has no deadline");
  }
  const Gathering* gathering = In<Gathering>();
  if (gathering != nullptr && !gathering->started && discovered_) {
    MUSTER_CHECK(Armed(TimerKind::kElastic, 0), "the wait for slots has no deadline");
  }
  if (gathering != nullptr && gathering->started) {
    // Those on the way report, and so does who starts an agent; a program may never call init().
    MUSTER_CHECK(Armed(TimerKind::kElastic, 0) || Armed(TimerKind::kStart, 0) ||
                     (gathering->late ? tally_[Stage::kWarm] == 0 && tally_[Stage::kSpawned] > 0
                                      : tally_[Stage::kPlanned] > 0),
                 "the start has no deadline");
    MUSTER_CHECK(options_.elastic || Armed(TimerKind::kStart, 0) || gathering->late,
                 "the start of a static job has no deadline");
  }
}

}  // namespace muster::launcher
