// Discovery, agents, and which slots get a worker (rules 2, 5, 6 and 9).

#include <algorithm>
#include <limits>
#include <utility>

#include "launcher/core/membership.h"

namespace muster::launcher {

void Membership::On(const HostsDiscovered& event) {
  discovered_ = true;
  discovery_trouble_.clear();
  if (In<Ending>() != nullptr) {
    return;
  }
  UpdateListing(event.hosts);
  for (auto& [name, host] : hosts_) {
    ReviewWithdrawals(host);
  }
  WarnOfNoGrowth();
  todo_.replan = todo_.reconsider = true;
}

void Membership::On(const DiscoveryFailed& event) {
  if (In<Ending>() != nullptr) {
    return;
  }
  if (!discovered_) {
    EndJob({kExitDiscovery, event.message, std::nullopt});
    return;
  }
  if (event.message != discovery_trouble_) {
    discovery_trouble_ = event.message;
    Emit(Warn{event.message + "; the last good list of hosts stays"});
  }
}

Host& Membership::HostNamed(const HostId& name) {
  const auto [found, added] = hosts_.try_emplace(name);
  if (added) {
    found->second.number = next_host_++;
    host_order_.emplace(found->second.number, name);
  }
  return found->second;
}

// One poll without a host or slot proves nothing, so what is withdrawn is what two polls in a row
// agree on: `allowed` is the larger of the last two counts.
void Membership::UpdateListing(const std::vector<HostSlots>& hosts) {
  std::map<HostId, uint32_t> before;
  for (auto& [name, host] : hosts_) {
    before.emplace(name, std::exchange(host.listed, 0));
  }
  for (const HostSlots& entry : hosts) {
    Host& host = HostNamed(entry.host);
    host.listed = entry.slots;
    host.ever_listed = true;
    if (entry.slots == 0) {
      WarnOnce("host " + entry.host.value + " is listed with 0 slots: unused");
    }
  }
  for (auto& [name, host] : hosts_) {
    const auto found = before.find(name);
    host.allowed = std::max(host.listed, found == before.end() ? 0 : found->second);
    if (host.allowed == 0) {
      host.drain_requested = false;
    }
  }
}

// Compares the workers of a host with the slots that it still has.
void Membership::ReviewWithdrawals(Host& host) {
  bool any_draining = false;
  const auto occupants = host.occupants;  // Dropping a planned worker changes the map.
  for (const auto& [index, id] : occupants) {
    if (In<Ending>() != nullptr) {
      return;
    }
    Worker& worker = *Find(id);
    const bool withdrawn = index >= host.allowed || host.drain_requested;
    if ((withdrawn || index >= host.listed) && worker.stage == Stage::kPlanned) {
      Erase(id);
    } else if (withdrawn && worker.IsOutsider()) {
      Dismiss(worker);
    } else if (withdrawn && worker.IsMember() && !worker.draining) {
      Because(NameOf(worker) + " is to leave: its slot was withdrawn");
      Update(worker, [](Worker& w) { w.draining = true; });
      todo_.reconsider = true;
    } else if (!withdrawn && worker.IsMember() && worker.draining && !worker.left &&
               !worker.terminated) {
      Because(NameOf(worker) + " stays: its slot is listed again");
      Update(worker, [](Worker& w) { w.draining = w.drain_ordered = false; });
      Cancel(TimerKind::kGrace, id.value);
      todo_.reconsider = true;
      if (const auto unheard = world_.unheard.extract(id)) {
        On(unheard.mapped());
      }
    }
    any_draining |= Find(id) != nullptr && worker.draining;
  }
  if (!any_draining) {
    host.removal_due = false;
    Cancel(TimerKind::kRemoval, host.number);
  }
}

void Membership::On(const AgentAttached& event) {
  Host& host = HostNamed(event.host);
  if (host.agent == AgentState::kNone) {
    host.drain_requested = false;  // It dialled in by itself, so it is there for workers again.
  }
  host.agent = AgentState::kAttached;
  host.blamed = false;
  host.trouble.clear();
  silent_.erase(event.host);
  blame_.HostReached(event.host);
  for (const auto& [index, id] : host.occupants) {
    Worker& worker = *Find(id);
    if (worker.stage == Stage::kPlanned) {
      SpawnPlanned(worker);
    }
  }
  Because("the agent of host " + event.host.value + " is up");
  todo_.replan = true;
}

void Membership::LoseAllOn(const HostId& name, const std::string& how) {
  const auto occupants = hosts_.at(name).occupants;
  for (const auto& [index, id] : occupants) {
    Worker* worker = Find(id);
    if (worker == nullptr) {
      continue;  // The loss of another one has ended the job, and with it all plans.
    }
    if (worker->stage == Stage::kPlanned) {
      Erase(id);
    } else if (worker->IsLiving()) {
      Emit(Refuse{id, "the agent of its host was lost"});
      Lose(*worker, how, Kill::kNone, Fault::kHost);
    }
  }
}

void Membership::On(const AgentLost& event) {
  const auto found = hosts_.find(event.host);
  if (found == hosts_.end() || found->second.agent == AgentState::kNone) {
    return;
  }
  Host& host = found->second;
  Because("the agent of host " + event.host.value + " was lost: " + event.evidence);
  const std::string how = "was lost with the agent of its host: " + event.evidence;
  if (In<Ending>() == nullptr) {
    LoseAllOn(event.host, how);
    const bool expected = host.drain_requested || host.allowed == 0;
    if (!expected && !std::exchange(host.blamed, true)) {
      blame_.HostFailed(event.host, now_);
    }
  }
  const auto occupants = host.occupants;  // What the losses above have left.
  for (const auto& [index, id] : occupants) {
    Erase(id);
  }
  host.agent = AgentState::kNone;
  host.trouble = "its agent was lost: " + event.evidence;
  silent_.erase(event.host);
  todo_.replan = todo_.reconsider = true;
}

void Membership::On(const AgentStartFailed& event) {
  const auto found = hosts_.find(event.host);
  if (found == hosts_.end() || found->second.agent != AgentState::kStarting) {
    return;
  }
  Host& host = found->second;
  host.agent = AgentState::kNone;
  DropPlanned(host);
  todo_.replan = todo_.reconsider = true;
  if (In<Ending>() != nullptr) {
    return;
  }
  const std::string what =
      "the agent of host " + event.host.value + " could not be started: " + event.message;
  if (event.unreachable) {
    blame_.HostUnreachable(event.host, now_);
  } else if (!options_.elastic) {
    EndJob({kExitFailure, what, std::nullopt});
    return;
  } else {
    blame_.HostFailed(event.host, now_);
  }
  if (std::exchange(host.trouble, event.message) != event.message) {
    Emit(Warn{what + (event.unreachable ? "; it is tried again" : "")});
  }
}

void Membership::DropPlanned(const Host& host) {
  const auto occupants = host.occupants;
  for (const auto& [index, id] : occupants) {
    if (Find(id)->stage == Stage::kPlanned) {
      Erase(id);
    }
  }
}

void Membership::On(const DrainRequested& event) {
  const auto found = hosts_.find(event.host);
  if (found == hosts_.end() || In<Ending>() != nullptr) {
    return;
  }
  const std::vector<Incarnation> members = LivingMembers();
  const bool all_done =
      !members.empty() && std::all_of(members.begin(), members.end(), [this](Incarnation id) {
        return Find(id)->done;
      });
  if (!options_.elastic && all_done) {
    Because("host " + event.host.value + " is to leave; the work is done, and its end is near");
    return;
  }
  if (!options_.elastic) {
    EndJob({kExitSignalBase + 15,
            "host " + event.host.value + " was told to leave (SIGTERM to its agent)",
            std::nullopt});
    return;
  }
  found->second.drain_requested = true;
  ReviewWithdrawals(found->second);
  todo_.replan = todo_.reconsider = true;
}

uint32_t Membership::ListedSlots(bool usable_only) const {
  uint32_t slots = 0;
  for (const auto& [name, host] : hosts_) {
    for (uint32_t index = 0; index < host.listed; ++index) {
      slots += !usable_only || blame_.Usable({name, index}, now_) ? 1 : 0;
    }
  }
  return slots;
}

bool Membership::AllSetAside() const {
  bool any = false;
  for (const auto& [name, host] : hosts_) {
    for (uint32_t index = 0; index < host.listed; ++index) {
      any = true;
      if (!blame_.SetAsideForGood({name, index})) {
        return false;
      }
    }
  }
  return any;
}

bool Membership::MaySpawn() const {
  if (Closing() || (!options_.elastic && world_.generation.value > 0)) {
    return false;
  }
  if (const Gathering* gathering = In<Gathering>()) {
    return gathering->started;
  }
  // A job whose members have not entered elastic::run cannot take newcomers in; started now, they
  // would only find that out.
  return In<Holding>() != nullptr || state_since_;
}

void Membership::Replan() {
  CheckStart();
  if (In<Ending>() != nullptr) {
    return;
  }
  if (MaySpawn()) {
    PlanSlots();
  }
  SyncAgents();
  const Gathering* gathering = In<Gathering>();
  const bool waiting = In<Holding>() != nullptr || (gathering != nullptr && gathering->started);
  const int64_t have = Arriving() + tally_[Stage::kWarm] + tally_.staying;
  if (waiting && have < Need() && AllSetAside()) {
    EndForNoSlots();
  }
}

void Membership::EndForNoSlots() {
  EndJob({kExitSetAside, "all slots are set aside after failures" + MissingHosts(), last_failure_},
         last_failed_);
}

void Membership::PlanSlots() {
  const int64_t want = static_cast<int64_t>(Bound()) + options_.spares;
  int64_t have = Arriving() + tally_[Stage::kWarm] + tally_.staying;
  Instant earliest = Instant::max();
  std::vector<Incarnation> planned;
  for (const auto& [number, name] : host_order_) {
    Host& host = hosts_.at(name);
    const bool draining =
        std::any_of(host.occupants.begin(), host.occupants.end(), [this](const auto& occupant) {
          return Find(occupant.second)->draining;
        });
    if (host.agent == AgentState::kSuspected || host.drain_requested || draining) {
      continue;
    }
    for (uint32_t index = 0; index < host.listed && have < want; ++index) {
      const SlotId slot{name, index};
      const auto from = blame_.UsableFrom(slot);
      if (host.occupants.contains(index) || quiet_.contains(slot) || !from.has_value()) {
        continue;
      }
      if (*from > now_) {
        earliest = std::min(earliest, *from);
        continue;
      }
      PlanWorker(slot, host, planned);
      ++have;
    }
  }
  if (have < want && earliest < Instant::max()) {
    Arm(TimerKind::kBackoff, 0, earliest - now_);
  } else {
    Cancel(TimerKind::kBackoff, 0);
  }
  if (!planned.empty()) {
    SetProvisionalPlaces();
  }
  for (const Incarnation id : planned) {
    Worker& worker = *Find(id);
    if (hosts_.at(worker.slot.host).agent == AgentState::kAttached) {
      SpawnPlanned(worker);
    }
  }
}

// Incarnations are given here and not when the agent is up, so that ranks follow the order of the
// hosts and not the order in which their agents happened to start.
void Membership::PlanWorker(const SlotId& slot, Host& host, std::vector<Incarnation>& planned) {
  Worker worker;
  worker.id = Incarnation{next_incarnation_++};
  worker.slot = slot;
  worker.first_attempt = !blame_.HasFailed(slot);
  host.occupants.emplace(slot.index, worker.id);
  planned.push_back(worker.id);
  tally_.Add(worker, 1);
  workers_.emplace(worker.id, std::move(worker));
}

// Where those who are on the way will most likely stand: as if everyone on the way were a member.
void Membership::SetProvisionalPlaces() {
  placed_for_ = world_.generation;
  std::vector<Candidate> candidates;
  for (const auto& [id, worker] : workers_) {
    if (worker.IsOutsider() || (worker.IsMember() && !worker.draining)) {
      candidates.push_back(CandidateOf(worker));
    }
  }
  candidates = InRankOrder(std::move(candidates));
  std::vector<SlotId> slots;
  slots.reserve(candidates.size());
  for (const Candidate& candidate : candidates) {
    slots.push_back(candidate.slot);
  }
  const std::vector<Placement> places = PlacementsOf(slots);
  for (size_t rank = 0; rank < candidates.size(); ++rank) {
    Placement place = places[rank];
    place.size = std::min(place.size, Bound());
    place.rank = std::min(place.rank, place.size - 1);
    // Devices belong to slots, so that set_device(local_rank()) is right from the start.
    place.local_rank = candidates[rank].slot.index;
    place.local_size = std::max(place.local_size, place.local_rank + 1);
    Find(candidates[rank].worker)->provisional = place;
  }
}

void Membership::SpawnPlanned(Worker& worker) {
  Update(worker, [](Worker& w) { w.stage = Stage::kSpawned; });
  Emit(SpawnWorker{worker.id, worker.slot, worker.provisional});
  ArmStart();
}

// Agents follow from workers: one is started for the first planned worker, and stopped when the
// host is no longer listed and its last process is gone.
void Membership::SyncAgents() {
  std::vector<HostId> forgotten;
  for (const auto& [number, name] : host_order_) {
    Host& host = hosts_.at(name);
    const bool wanted = (host.allowed > 0 && !host.drain_requested) || !host.ever_listed;
    if (!host.occupants.empty() && host.agent == AgentState::kNone) {
      Emit(StartAgent{name});
      host.agent = AgentState::kStarting;
    } else if (host.occupants.empty() && !wanted &&
               (host.agent == AgentState::kStarting || host.agent == AgentState::kAttached)) {
      Emit(StopAgent{name});
      host.agent = AgentState::kNone;
    }
    if (host.occupants.empty() && host.allowed == 0 && host.agent == AgentState::kNone) {
      forgotten.push_back(name);
    }
  }
  for (const HostId& name : forgotten) {
    host_order_.erase(hosts_.at(name).number);
    hosts_.erase(name);
  }
}

// The hosts that have no agent though they should, each with the reason: "; host b: no route".
std::string Membership::MissingHosts() const {
  std::string text;
  for (const auto& [number, name] : host_order_) {
    const Host& host = hosts_.at(name);
    const bool untried = host.agent == AgentState::kNone && host.trouble.empty();
    if (host.listed == 0 || host.agent == AgentState::kAttached || untried) {
      continue;
    }
    text += "; host " + name.value + ": " +
            (host.agent == AgentState::kSuspected ? "its agent is silent"
             : host.trouble.empty() ? "its agent has not come up (can it reach this machine? see "
                                      "--network-interface and --port-range)"
                                    : host.trouble);
  }
  return text;
}

void Membership::WarnOfNoGrowth() {
  const bool stuck = options_.elastic && In<Running>() != nullptr && !state_since_ && !Closing() &&
                     now_ - first_world_at_ > options_.start_timeout;
  if (stuck && tally_.staying < Bound() && ListedSlots(true) > tally_.staying) {
    WarnOnce("the job cannot use the slots that are free: no worker has entered elastic::run");
  }
}

}  // namespace muster::launcher
