// The wish for another world: newcomers to take in, members that are to leave (rules 5 and 6).

#include <algorithm>
#include <utility>

#include "launcher/core/membership.h"

namespace muster::launcher {

int64_t Membership::Arriving() const {
  return tally_[Stage::kPlanned] + tally_[Stage::kSpawned] + tally_[Stage::kJoined];
}

int64_t Membership::Takeable() const {
  return (Closing() ? tally_.returned : tally_[Stage::kWarm]) - SilentWarm();
}

// Newcomers that the next world could take in.
int64_t Membership::Growth() const {
  const int64_t room = static_cast<int64_t>(Bound()) - tally_.staying;
  return std::max<int64_t>(0, std::min(room, Takeable()));
}

// With a world that stands: tell its members whether it is to change, and change it when all have
// left. Between the two they go on training.
void Membership::ReconsiderWish() {
  const int64_t growth = Growth();
  const bool all_left = tally_.open == 0 && (tally_.left > 0 || (Closing() && growth > 0));
  if (all_left) {
    NextWorld(Change::kPlanned);
    return;
  }
  OrderDrains(growth);
  // A wish that has been announced is not taken back because one more newcomer has come.
  const bool settled = Arriving() == 0 || settled_ || world_.notified;
  const bool wish = (growth > 0 && settled) || tally_.ordered > 0;
  if (wish != world_.notified) {
    Notify(wish);
  }
}

// A drain is ordered when the world can do without the member: others hold State on, and np_min is
// kept, or the time in which replacements might have come is over.
void Membership::OrderDrains(int64_t growth) {
  if (tally_.draining == tally_.ordered) {
    return;
  }
  const int64_t others = tally_.staying + growth;
  std::vector<Incarnation> ready;
  for (const Incarnation id : LivingMembers()) {
    const Worker& worker = *Find(id);
    const Host& host = hosts_.at(worker.slot.host);
    if (!worker.draining || worker.drain_ordered || worker.done) {
      continue;
    }
    const bool enough = Closing() || others >= options_.np_min || host.removal_due;
    if (enough && others > 0) {
      ready.push_back(id);
    } else if (!host.removal_due && !Armed(TimerKind::kRemoval, host.number)) {
      Arm(TimerKind::kRemoval, host.number, options_.grace);
    } else if (host.removal_due && !Armed(TimerKind::kGrace, id.value) && !worker.terminated) {
      Arm(TimerKind::kGrace, id.value, options_.grace);
    }
  }
  if (!ready.empty()) {
    OrderDrain(ready);
  }
}

void Membership::OrderDrain(const std::vector<Incarnation>& workers) {
  for (const Incarnation id : workers) {
    Worker& worker = *Find(id);
    Update(worker, [](Worker& w) { w.drain_ordered = true; });
    if (!Armed(TimerKind::kGrace, id.value) && !worker.terminated) {
      Arm(TimerKind::kGrace, id.value, options_.grace);
    }
  }
  Because(std::to_string(workers.size()) + " members are told to drain");
  Emit(Drain{workers});
}

void Membership::Notify(bool pending) {
  NotifyPending notice{world_.generation, {}, pending};
  for (const Incarnation id : LivingMembers()) {
    if (Find(id)->IsOpen()) {
      notice.members.push_back(id);
    }
  }
  Because(pending ? "the members are told that the world will change"
                  : "the members are told that the world will not change");
  world_.notified = pending;
  Emit(std::move(notice));
}

// Sends a worker away that is no member (any more). It is not blamed, and its code does not count.
void Membership::Dismiss(Worker& worker) {
  const Stage stage = worker.stage;
  if (stage == Stage::kPlanned) {
    Erase(worker.id);
    return;
  }
  Because(NameOf(worker) + " is not needed");
  Update(worker, [](Worker& w) { w.stage = Stage::kDismissed; });
  todo_.reconsider = true;
  if (stage == Stage::kSpawned) {
    // Without init() it cannot be told in any other way.
    Emit(KillWorker{worker.id, false});
    worker.terminated = true;
  } else {
    Emit(Release{{worker.id}});
  }
  if (!Armed(TimerKind::kGrace, worker.id.value)) {
    Arm(TimerKind::kGrace, worker.id.value, options_.grace);
  }
}

}  // namespace muster::launcher
