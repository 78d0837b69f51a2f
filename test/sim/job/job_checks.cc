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
// Frozen after 1 s; the rest is samples, and a machine that is late.
constexpr Duration kFrozenLost = seconds(4);
// Arrivals settle for 500 ms, and the members leave at their next commit but one.
constexpr Duration kTakenIn = seconds(5);

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
    if (other.get() != &worker && !other->gone() && other->slot() == worker.slot()) {
      universe_.Wrong(Name(worker) + " is started on the slot of " + Name(*other) +
                      ", which is not gone yet");
    }
  }
}

void JobSim::OnCame(const SimWorker& worker, const SimGeneration& generation) {
  const launcher::MembershipOptions& membership = options_.membership;
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
  // When the last one comes all are known, the dead included.
  const std::map<uint32_t, const SimWorker*>& came = generation.came();
  if (came.size() < generation.size()) {
    return;
  }
  const SimWorker* holder = nullptr;
  for (const auto& [rank, member] : came) {
    const auto commit = member->held() ? commits_.find(*member->held()) : commits_.end();
    // With the first step of a world all of its members have synced, and hold something.
    if (commit != commits_.end() && commit->first.sequence > 0 &&
        commit->first.generation < generation.number() &&
        universe_.now() - *member->holds_since() > kHeardOf) {
      holder = member;
    }
  }
  if (!came.at(0)->held() && holder != nullptr) {
    universe_.Wrong("rank 0 holds nothing, and " + Name(*holder) + " holds a commit");
  }
}

void JobSim::OnCommitted(const SimWorker& worker, CommitId commit, uint64_t step) {
  const auto [it, is_new] = commits_.try_emplace(commit, Commit{step, universe_.now()});
  if (it->second.step != step) {
    universe_.Wrong(Name(worker) + " has step " + std::to_string(step) + " at commit " +
                    Text(commit) + ", others have " + std::to_string(it->second.step));
  }
  last_commit_ = universe_.now();
  if (!state_heard_of_ && commit.sequence > 0 && Counts(worker)) {
    universe_.At(kHeardOf, [this, &worker] { state_heard_of_ |= Counts(worker); });
  }
  if (is_new) {
    universe_.Note(Name(worker) + " commits " + Text(commit) + ", step " + std::to_string(step));
  }
}

// Nobody may hold anything newer than what a new world agrees on, unless it is about to be told to
// go, or to bring it into the next one.
void JobSim::OnSynced(const SimWorker& worker, CommitId commit, bool fresh) {
  if (fresh && state_heard_of_) {
    ExpectEnded(worker);
  }
  for (const auto& other : site_.workers) {
    const std::optional<CommitId>& held = other->held();
    const bool heard_of = held && universe_.now() - *other->holds_since() > kHeardOf;
    if (heard_of && *held > commit && held->generation < worker.newest().value && Counts(*other) &&
        other->newest() <= worker.newest()) {
      ExpectCarriedOn(*other, *held, worker.newest());
    }
  }
}

// A world may begin its first sync while the driver learns that nobody in it holds the State. Then
// the job ends.
void JobSim::ExpectEnded(const SimWorker& worker) {
  universe_.At(kHeardOf, [this, &worker] {
    if (Counts(worker)) {
      universe_.Wrong("generation " + std::to_string(worker.newest().value) +
                      " starts anew, though steps were made before");
    }
  });
}

void JobSim::ExpectCarriedOn(const SimWorker& holder, CommitId held, Generation passed_by) {
  universe_.At(kHeardOf, [this, &holder, held, passed_by] {
    if (site_.driver && Counts(holder) && holder.held() == held && holder.newest() <= passed_by) {
      universe_.Wrong("generation " + std::to_string(passed_by.value) + " goes on without " +
                      Text(held) + ", which " + Name(holder) + " holds");
    }
  });
}

// While nothing is done to its agent.
void JobSim::ExpectFrozenLost(const SimWorker& worker) {
  universe_.At(kFrozenLost, [this, &worker, stops = worker.stops()] {
    if (site_.driver && worker.alive() && worker.stops() == stops && worker.process()->stopped &&
        worker.joined() && !worker.leaving() && worker.machine()->WellFor(kFrozenLost)) {
      universe_.Wrong(Name(worker) + " has been frozen for 4 s, and is not lost");
    }
  });
}

// A job that may grow does, while nothing is done to the newcomer's agent.
void JobSim::ExpectTakenIn(const SimWorker& worker) {
  const launcher::MembershipOptions& membership = options_.membership;
  if (membership.np_max || membership.spares > 0) {
    return;
  }
  universe_.At(kTakenIn, [this, &worker] {
    const bool trains = universe_.now() - last_commit_ < seconds(1);
    if (site_.driver && trains && Counts(worker) && worker.is_newcomer() && healed_ &&
        worker.machine()->WellFor(kTakenIn) && !worker.PendingChange()) {
      universe_.Wrong(Name(worker) + " is warm for 5 s, and is not taken in");
    }
  });
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

void JobSim::CheckDriversMachine() {
  for (const SimWorker* worker : site_.Living()) {
    if (worker->machine()->local()) {
      universe_.Wrong(Name(*worker) + " outlives the driver on its machine");
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
  CheckExitCode(*exit_code_);
}

// Why a job may end so (docs/errors.md).
void JobSim::CheckExitCode(int code) {
  const launcher::MembershipOptions& membership = options_.membership;
  const auto any = [this](auto condition) {
    return std::any_of(site_.workers.begin(), site_.workers.end(), [&](const auto& worker) {
      return condition(*worker);
    });
  };
  // --blame host ends the siblings of a failed worker; a host that leaves has its time, and no
  // more.
  const bool may_end_some = membership.blame_host || listing_changed_ || drained_;
  const Duration lasted = universe_.now() - Instant(seconds(1000));
  bool right = true;
  switch (code) {
    case 0:
      // Nobody is ended while it trains: all are done, but for newcomers and those that were lost.
      right =
          (anybody_done_ || exited_early_) &&
          (may_end_some || !any([](const SimWorker& worker) { return worker.ended_at_work(); }));
      break;
    case launcher::kExitElasticTimeout:
      right = membership.elastic && lasted > membership.elastic_timeout;
      break;
    case launcher::kExitLimit:
      right = membership.reset_limit || membership.failure_limit;
      break;
    case launcher::kExitSetAside:
      right = !membership.cooldown;
      break;
    case launcher::kExitStateLost:
      right = may_end_some || !any([](const SimWorker& worker) {
                return worker.ended_at_work() && worker.held().has_value();
              });
      break;
    case launcher::kExitNotStarted:
      right = site_.fork_failed;
      break;
    case launcher::kExitFailure:
      right = faults_ > 0;
      break;
    case launcher::kExitSignalBase + 15:
      right = stop_asked_ || (drained_ && !membership.elastic) || any([](const SimWorker& worker) {
                return worker.ended_with() && worker.ended_with()->code == 143;
              });
      break;
    default:
      // The code of a worker's failure.
      right = any([code](const SimWorker& worker) {
        return worker.ended_with() && worker.ended_with()->code == code;
      });
  }
  if (!right) {
    universe_.Wrong("the job ends with " + std::to_string(code) + ", for no reason");
  }
  if (code != 0 && faults_ == 0 && plain_) {
    universe_.Wrong("nothing went wrong, and the job ends with " + std::to_string(code));
  }
}

}  // namespace muster::sim
