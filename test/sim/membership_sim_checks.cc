// Safety: what no step may do, whatever has happened before.

#include <algorithm>

#include "test/sim/membership_sim.h"

namespace muster::launcher {

void MembershipSim::CheckWorld(const FormWorld& effect) {
  if (worlds_.contains(effect.generation) || effect.generation.value != worlds_.size() + 1) {
    Wrong("generations do not grow by one");
  }
  std::set<Incarnation> seen;
  std::set<HostId> hosts;
  const HostId* host = nullptr;
  for (const Member& member : effect.members) {
    const auto process = processes_.find(member.worker);
    if (process == processes_.end() || !process->second.joined) {
      Wrong("a member that has not joined");
      return;
    }
    if (process->second.doomed) {
      Wrong("a member that was told to go: " + std::to_string(member.worker.value));
    }
    if (agents_[member.slot.host].suspected && !process->second.named) {
      Wrong("a newcomer that cannot be reached is made a member");
    }
    process->second.named = true;
    if (!seen.insert(member.worker).second) {
      Wrong("a worker is in the world twice");
    }
    if (host == nullptr || *host != member.slot.host) {
      host = &member.slot.host;
      if (!hosts.insert(*host).second) {
        Wrong("the ranks of a host are not contiguous");
      }
    }
  }
  const auto holds = [this](const Member& member) {
    return processes_.at(member.worker).held.has_value();
  };
  const Generation before = processes_.at(effect.members.front().worker).in;
  const bool all_synced =
      before.value > 0 && worlds_[before].synced.size() == worlds_[before].members.size();
  if (all_synced && !holds(effect.members.front()) &&
      std::any_of(effect.members.begin(), effect.members.end(), holds)) {
    Wrong("rank 0 holds no state, but another member does");
  }
  if (effect.members.size() < options_.np_min && !any_done_) {
    Wrong("a world below --min-np");
  }
  if (!options_.elastic && effect.members.size() != options_.np_start) {
    Wrong("a static world of another size");
  }
  if (options_.np_max.has_value() && options_.elastic && effect.members.size() > *options_.np_max) {
    Wrong("a world above --max-np");
  }
}

void MembershipSim::CheckSpawn(const SpawnWorker& effect) {
  for (const auto& [id, process] : processes_) {
    if (process.slot == effect.slot && !process.dead) {
      Wrong("worker " + std::to_string(effect.worker.value) + " is started beside worker " +
            std::to_string(id.value));
    }
  }
  if (!processes_.empty() && processes_.rbegin()->first >= effect.worker && ending_) {
    Wrong("a worker is started while the job ends");
  }
  const auto listed = std::find_if(polled_.begin(), polled_.end(), [&](const HostSlots& host) {
    return host.host == effect.slot.host && effect.slot.index < host.slots;
  });
  if (listed == polled_.end()) {
    Wrong("a worker is started on a slot that is not listed");
  }
}

// A host that may come back is given up only for somebody who works, can be reached, and carries
// its State on; and if all were cut off, not before the others have had their time to come back.
void MembershipSim::CheckGivenUp(const Process& lost) {
  const std::string who = "worker " + std::to_string(lost.id.value);
  if (!agents_[lost.slot.host].suspected || lost.doomed || ending_) {
    return;
  }
  if (lost.done) {
    Wrong(who + " is done, and is given up");
  }
  if (!HasHadTime(lost.slot.host)) {
    Wrong(who + " is given up as soon as another host is back");
  }
  const auto carries = [&](const auto& entry) {
    const Process& other = entry.second;
    return !agents_[other.slot.host].suspected && !other.doomed && other.held.has_value() &&
           other.held->generation >= lost.held->generation;
  };
  if (state_exists_ && lost.held.has_value() &&
      std::none_of(processes_.begin(), processes_.end(), carries)) {
    Wrong(who + " is given up, and nobody who can be reached has its State");
  }
}

bool MembershipSim::HasHadTime(const HostId& cut) const {
  const SimAgent& lost = agents_.at(cut);
  return std::any_of(agents_.begin(), agents_.end(), [&](const auto& entry) {
    const SimAgent& other = entry.second;
    return other.up && !other.suspected &&
           (other.back_at <= lost.suspected_at || now_ - other.back_at >= std::chrono::seconds(2));
  });
}

// All members of a world agree now. Nobody outside may hold anything newer, and the first of them
// must have been a holder: the user's callbacks rely on it.
void MembershipSim::CheckSynced(Generation generation) {
  if (membership_->generation() != generation || membership_->phase() != "running") {
    return;
  }
  const auto newest = Newest(worlds_[generation]);
  for (const auto& [id, process] : processes_) {
    if (!process.dead && !process.doomed && !process.termed && !process.frozen &&
        process.held > newest && process.at != At::kEpilogue && process.at != At::kShutdown) {
      Wrong("worker " + std::to_string(id.value) + " holds a newer commit than the world");
    }
  }
}

void MembershipSim::NoteEnding() {
  if (ending_ || (membership_->phase() != "ending" && membership_->phase() != "finished")) {
    return;
  }
  ending_ = true;
  ending_since_ = now_;
  for (const auto& [id, process] : processes_) {
    const bool able =
        process.at == At::kAwait || process.at == At::kForming || process.at == At::kTraining;
    holder_at_end_ |= able && !process.dead && !process.doomed && !process.termed &&
                      !process.frozen && process.held.has_value() && agents_[process.slot.host].up;
  }
}

void MembershipSim::CheckFinish(const FinishJob& effect) {
  finished_ = true;
  exit_code_ = effect.code;
  cause_ = effect.cause;
  if (effect.cause.empty()) {
    Wrong("the end has no cause");
  }
  // Whatever is cut off: SIGTERM, a grace, SIGKILL, another grace.
  if (now_ - ending_since_ > 2 * options_.grace) {
    Wrong("the end takes longer than two graces");
  }
  // --blame host stops the siblings of a failed worker, whatever they hold, as Horovod does.
  if (!options_.blame_host && effect.cause.find("the state is lost") != std::string::npos &&
      holder_at_end_) {
    Wrong("the state is given up while a worker holds it");
  }
  const bool complete = !progress_.empty() &&
                        std::any_of(progress_.begin(), progress_.end(), [this](const auto& entry) {
                          return entry.second >= steps_;
                        });
  if (effect.code == 0 && (!complete || !any_done_)) {
    Wrong("success, but the work is not done: " + effect.cause);
  }
  for (const auto& [id, process] : processes_) {
    const SimAgent& agent = agents_[process.slot.host];
    if (!process.dead && agent.up && !agent.silent) {
      Wrong("worker " + std::to_string(id.value) + " outlives the job");
    }
  }
}

}  // namespace muster::launcher
