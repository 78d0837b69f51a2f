// Safety: what must not happen, whatever has gone wrong before; and what a job's end may be.

#include <algorithm>
#include <utility>

#include "test/sim/job/job_sim.h"
#include "test/sim/job/sim_generation.h"
#include "test/sim/job/sim_worker.h"

namespace muster::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// By then the driver has heard of a commit whose holder it can hear at all.
constexpr Duration kHeardOf = seconds(1);

std::string Text(CommitId commit) {
  return "(" + std::to_string(commit.generation) + ", " + std::to_string(commit.sequence) + ")";
}

std::string Name(const SimWorker& worker) {
  return "worker " + std::to_string(worker.id().value);
}

}  // namespace

// Somebody whose State must not be lost: it works, and the driver can know of it.
bool JobSim::Counts(const SimWorker& worker) const {
  const Machine* machine = worker.machine();
  return worker.alive() && !worker.doomed() && !worker.failed() && !worker.process()->stopped &&
         worker.in_elastic() && machine->has_agent() && !machine->agent_stopped() &&
         !site_.driver_process->stopped &&
         site_.network.Connected(machine->address(), kDriverMachine);
}

void JobSim::OnProcessStarted(const SimWorker& worker) {
  for (const auto& other : site_.workers) {
    if (other.get() != &worker && other->alive() && other->slot() == worker.slot()) {
      universe_.Wrong(Name(worker) + " is started on the slot of " + Name(*other) +
                      ", which is alive");
    }
  }
}

void JobSim::OnFormOrdered(const SimWorker& worker, const SimGeneration& generation) {
  const launcher::MembershipOptions& membership = options_.membership;
  newest_formed_ = std::max(newest_formed_, generation.number());
  if (!worker.joined()) {
    universe_.Wrong(Name(worker) + " is a member and has not joined");
  }
  if (generation.size() < membership.np_min && !anybody_done_) {
    universe_.Wrong("a world below --min-np");
  }
  if (membership.elastic ? membership.np_max && generation.size() > *membership.np_max
                         : generation.size() != membership.np_start) {
    universe_.Wrong("a world of size " + std::to_string(generation.size()));
  }
  if (generation.members().size() + 1 < generation.size()) {
    return;
  }
  // The last one comes: all are known.
  const SimWorker* first = worker.rank() == 0 ? &worker : nullptr;
  const SimWorker* holder = nullptr;
  const auto look = [&](const SimWorker& member) {
    const auto commit = member.held() ? commits_.find(*member.held()) : commits_.end();
    // With the first step of a world all of its members have synced, and hold something.
    if (commit != commits_.end() && commit->first.sequence > 0 &&
        universe_.now() - commit->second.at > kHeardOf) {
      holder = &member;
    }
  };
  look(worker);
  for (const auto& [rank, member] : generation.members()) {
    first = rank == 0 ? member : first;
    look(*member);
  }
  if (first != nullptr && !first->held() && holder != nullptr) {
    universe_.Wrong("rank 0 holds nothing, and " + Name(*holder) + " holds a commit");
  }
}

void JobSim::OnCommitted(const SimWorker& worker, CommitId commit, uint64_t step) {
  const auto [it, is_new] = commits_.try_emplace(commit, Commit{step, universe_.now()});
  if (it->second.step != step) {
    universe_.Wrong(Name(worker) + " has step " + std::to_string(step) + " at commit " +
                    Text(commit) + ", others have " + std::to_string(it->second.step));
  }
  if (is_new) {
    universe_.Note(Name(worker) + " commits " + Text(commit) + ", step " + std::to_string(step));
  }
}

// Nobody may hold anything newer than what a new world agrees on.
void JobSim::OnSynced(const SimWorker& worker, CommitId commit, bool fresh) {
  for (const auto& other : site_.workers) {
    const std::optional<CommitId>& held = other->held();
    if (!held || !Counts(*other) || held->generation >= worker.newest().value) {
      continue;
    }
    const bool heard = universe_.now() - commits_.at(*held).at > kHeardOf;
    if (*held > commit && heard && other->newest() <= worker.newest()) {
      universe_.Wrong("generation " + std::to_string(worker.newest().value) + " goes on at " +
                      Text(commit) + (fresh ? ", anew" : "") + "; " + Name(*other) + " holds " +
                      Text(*held));
    }
  }
}

void JobSim::OnDone(const SimWorker& worker) {
  anybody_done_ = true;
  universe_.Note(Name(worker) + " is done");
}

// Nobody was taken for frozen who was only paused, and who was frozen is named so.
void JobSim::CheckIncidents() {
  for (const launcher::Incident& incident : site_.incidents) {
    for (const launcher::Victim& victim : incident.victims) {
      const bool as_frozen = victim.fate == launcher::Fate::kFrozen;
      if ((as_frozen || victim.fate == launcher::Fate::kSilent) &&
          !frozen_.contains(victim.worker)) {
        universe_.Wrong("worker " + std::to_string(victim.worker.value) +
                        " is said to be frozen or silent, and was paused at most");
      }
    }
  }
}

void JobSim::CheckEnd() {
  CheckIncidents();
  for (SimWorker* worker : site_.Living()) {
    universe_.Wrong(Name(*worker) + " outlives the job");
  }
  for (const auto& [host, machine] : site_.machines) {
    if (machine->has_agent()) {
      universe_.Wrong("the agent of " + host.value + " outlives the job");
    }
  }
  if (!exit_code_) {
    return;
  }
  static const std::set<int> kDocumented{0, 1, 3, 7, 70, 75, 76, 77, 79, 127, 137, 143};
  if (!kDocumented.contains(*exit_code_)) {
    universe_.Wrong("the job ends with " + std::to_string(*exit_code_));
  }
  if (*exit_code_ == 0 && !anybody_done_ && !exited_early_) {
    universe_.Wrong("success, and nobody is done");
  }
  if (*exit_code_ != 0 && faults_ == 0 && plain_) {
    universe_.Wrong("nothing went wrong, and the job ends with " + std::to_string(*exit_code_));
  }
}

}  // namespace muster::sim
