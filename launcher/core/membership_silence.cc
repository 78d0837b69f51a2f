// Agents that are not heard (docs/membership.md, "Silence"). Their workers may live on without
// being reachable. Giving them up too early costs processes that were well, and the State if
// nobody else has it; waiting for them stops the job. So they are given up as soon as a member
// that can be reached carries the State on, and before that only with the end of the lease.

#include <algorithm>
#include <iterator>
#include <utility>

#include "launcher/core/membership.h"

namespace muster::launcher {

void Membership::On(const AgentSuspected& event) {
  for (const HostId& name : event.hosts) {
    const auto found = hosts_.find(name);
    if (found != hosts_.end() && found->second.agent == AgentState::kAttached) {
      found->second.agent = AgentState::kSuspected;
      silent_.emplace(name, now_);
      Because("the agent of host " + name.value + " is silent");
    }
  }
  todo_.judge_silent = true;
}

void Membership::On(const AgentReattached& event) {
  const auto found = hosts_.find(event.host);
  if (found == hosts_.end() || (found->second.agent != AgentState::kAttached &&
                                found->second.agent != AgentState::kSuspected)) {
    return;
  }
  Host& host = found->second;
  host.agent = AgentState::kAttached;
  host.blamed = false;
  const bool was_silent = silent_.erase(event.host) > 0;
  Because("the agent of host " + event.host.value + " is back");
  for (const auto& [index, id] : host.occupants) {
    if (Find(id)->stage == Stage::kLost) {
      Emit(KillWorker{id, true});
    }
  }
  // What was said to the host meanwhile has only just arrived there.
  const Generation world = world_.generation;
  if (In<Running>() != nullptr && Armed(TimerKind::kFormed, world.value)) {
    Arm(TimerKind::kFormed, world.value, kFormedTime);
  }
  if (Asking* asking = In<Asking>()) {
    AskAgent again{world, {}};
    std::copy_if(asking->unanswered.begin(),
                 asking->unanswered.end(),
                 std::back_inserter(again.suspects),
                 [&](Incarnation id) { return Find(id)->slot.host == event.host; });
    if (!again.suspects.empty()) {
      Emit(again);
      asking->overdue = true;
      Arm(TimerKind::kSuspect, world.value, kSuspectOverdueTime);
    }
  }
  // What cut this one off has probably cut off the others too: they may be back in a moment.
  if (was_silent && !silent_.empty() && In<Ending>() == nullptr) {
    Arm(TimerKind::kSilence, 0, kReturnTime);
  }
  todo_.replan = todo_.reconsider = true;
}

void Membership::JudgeSilentAgents() {
  if (!options_.elastic || Armed(TimerKind::kSilence, 0)) {
    return;
  }
  for (const auto& [name, since] : silent_) {
    JudgeSilentAgent(name);
  }
}

// A worker that is Done is not given up: nobody needs it any more, and it may be saving what the
// job was for. Only the world goes on without it.
void Membership::JudgeSilentAgent(const HostId& name) {
  Host& host = hosts_.at(name);
  std::vector<Incarnation> given_up;
  bool holders = false;
  bool done = false;
  for (const auto& [index, id] : host.occupants) {
    const Worker& worker = *Find(id);
    if (worker.done) {
      done |= worker.IsMember() && !worker.bye;
    } else if (worker.IsLiving()) {
      given_up.push_back(id);
      holders |= worker.IsHolder();
    }
  }
  if ((given_up.empty() && !done) || !GoesOn(holders)) {
    return;
  }
  if (done) {
    BreakWorld();
  }
  for (const Incarnation id : given_up) {
    Emit(Refuse{id, "the agent of its host is silent, and the others go on"});
    Lose(*Find(id), "was lost: the agent of its host is silent", Kill::kNone, Fault::kHost);
    if (In<Ending>() != nullptr) {
      return;
    }
  }
  if (!given_up.empty() && !std::exchange(host.blamed, true)) {
    blame_.HostFailed(name, now_);
  }
}

// True if a member that works can be reached and, with_state, is known to hold State that is as new
// as anybody's: it has been in every world since it got it. One commit more or less is no matter;
// it would be none after any other loss.
bool Membership::GoesOn(bool with_state) const {
  return std::any_of(world_.members.begin(), world_.members.end(), [&](Incarnation id) {
    const Worker* worker = Find(id);
    return worker != nullptr && worker->IsMember() && !worker->done && !Silent(*worker) &&
           (!with_state || (worker->held.has_value() && !worker->behind));
  });
}

// For as long as its agent may be silent without having been lost, nothing that it does not do or
// answer is its own fault.
bool Membership::Excused(const Worker& worker) const {
  const auto silent = silent_.find(worker.slot.host);
  return silent != silent_.end() && now_ - silent->second < options_.driver_grace + kLeaseMargin;
}

// Workers that would be taken into the next world if they could be reached.
int64_t Membership::SilentWarm() const {
  int64_t count = 0;
  for (const auto& [name, since] : silent_) {
    for (const auto& [index, id] : hosts_.at(name).occupants) {
      const Worker& worker = *Find(id);
      count += worker.stage == Stage::kWarm && (!Closing() || worker.returned) ? 1 : 0;
    }
  }
  return count;
}

}  // namespace muster::launcher
