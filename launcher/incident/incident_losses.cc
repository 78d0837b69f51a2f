// Who was lost by a step, and what became of it. Membership says in no effect that a worker is
// lost; but each one that is, is killed or refused in that step, or has just exited, and is no
// member any more.

#include <algorithm>
#include <utility>

#include "launcher/incident/incident_collector.h"

namespace muster::launcher {
namespace {

// The worker that an event is about, if it may mean that this worker is lost.
std::optional<Incarnation> SubjectOf(const Event& event) {
  if (const auto* lost = std::get_if<WorkerLost>(&event)) {
    return lost->worker;
  }
  if (const auto* exited = std::get_if<WorkerExited>(&event)) {
    return exited->worker;
  }
  if (const auto* failed = std::get_if<SpawnFailed>(&event)) {
    return failed->worker;
  }
  return std::nullopt;
}

std::vector<Incarnation> Candidates(const Event& event, const Transition& transition) {
  std::vector<Incarnation> candidates;
  const auto add = [&candidates](Incarnation id) {
    if (std::find(candidates.begin(), candidates.end(), id) == candidates.end()) {
      candidates.push_back(id);
    }
  };
  if (const auto subject = SubjectOf(event)) {
    add(*subject);
  }
  for (const Effect& effect : transition.effects) {
    if (const auto* refuse = std::get_if<Refuse>(&effect)) {
      add(refuse->worker);
    } else if (const auto* kill = std::get_if<KillWorker>(&effect)) {
      add(kill->worker);
    }
  }
  return candidates;
}

bool IsRefused(Incarnation id, const Transition& transition) {
  return std::any_of(
      transition.effects.begin(), transition.effects.end(), [id](const Effect& effect) {
        const auto* refuse = std::get_if<Refuse>(&effect);
        return refuse != nullptr && refuse->worker == id;
      });
}

bool IsTimer(const Event& event, TimerKind kind) {
  const auto* fired = std::get_if<TimerFired>(&event);
  return fired != nullptr && fired->timer.kind == kind;
}

std::string NameOfVictim(const Victim& victim) {
  return victim.rank ? "rank " + std::to_string(*victim.rank)
                     : "the worker on slot " + std::to_string(victim.slot.index);
}

Fate FateOfKind(LossKind kind) {
  switch (kind) {
    case LossKind::kFrozen:
      return Fate::kFrozen;
    case LossKind::kSilent:
      return Fate::kSilent;
    case LossKind::kStalled:
      return Fate::kStalled;
    case LossKind::kOwnerDied:
      break;
  }
  return Fate::kGone;
}

}  // namespace

void IncidentCollector::SeeLosses(const Event& event,
                                  const Transition& transition,
                                  const Membership& membership) {
  if (const auto* exited = std::get_if<WorkerExited>(&event)) {
    LearnExit(*exited);
  }
  std::vector<Incarnation> newcomers;
  for (const Incarnation id : Candidates(event, transition)) {
    const Worker* worker = Find(id);
    if (ending_ || worker == nullptr || worker->lost) {
      continue;
    }
    if (worker->rank || worker->done) {
      if (JustLost(id, event, membership)) {
        LoseMember(id, event);
      }
    } else if (!worker->dismissed && (SubjectOf(event) == id || IsRefused(id, transition))) {
      newcomers.push_back(id);
    }
  }
  // A member's loss first: what happens to a newcomer with it is part of the same story.
  const bool ends = membership.phase() == "ending" || membership.finished();
  for (const Incarnation id : newcomers) {
    LoseNewcomer(id, event, ends);
  }
}

bool IncidentCollector::JustLost(Incarnation id, const Event& event, const Membership& membership) {
  const auto* exited = std::get_if<WorkerExited>(&event);
  if (Find(id)->done && exited != nullptr && exited->worker == id) {
    return exited->code != 0;
  }
  return Find(id)->rank.has_value() && !membership.RankOf(id).has_value();
}

void IncidentCollector::LoseMember(Incarnation id, const Event& event) {
  Change& change = Begin(Topic::kTrouble);
  Add(change, MakeVictim(id, event));
  Find(id)->lost = true;
  significant_ = true;
}

// In a story that goes on, a newcomer that fails changes no world: a record of its own. While the
// survivors wait for newcomers, or if the job ends with it, it is part of the change.
void IncidentCollector::LoseNewcomer(Incarnation id, const Event& event, bool job_ends) {
  const auto* exited = std::get_if<WorkerExited>(&event);
  if (exited != nullptr && exited->code == 0 && generation_.value == 0) {
    return;  // A program without init() has done its work.
  }
  Find(id)->lost = true;
  const bool open = change_ && !change_->incident.phases.form;
  if (job_ends || (open && change_->first_word.contains(Topic::kTrouble))) {
    Change& change = Begin(Topic::kTrouble);
    Add(change, MakeVictim(id, event));
    significant_ = true;
    return;
  }
  Change alone;
  alone.incident.generation_before = alone.incident.generation_after = generation_;
  alone.incident.size_before = alone.incident.size_after = static_cast<uint32_t>(members_.size());
  for (const Clue& clue : clues_) {
    if (clue.worker == id && clue.topic == Topic::kTrouble) {
      Add(alone, Topic::kTrouble, clue.evidence);
    }
  }
  std::erase_if(clues_, [id](const Clue& clue) { return clue.worker == id; });
  Add(alone, MakeVictim(id, event));
  Complete(alone, Outcome::kSame);
  late_.push_back(std::move(alone));
}

Victim IncidentCollector::MakeVictim(Incarnation id, const Event& event) const {
  const Worker& worker = workers_.at(id);
  Victim victim{
      id, worker.slot, worker.rank, worker.pid, FateOf(id, event), std::nullopt, 0, false};
  const auto* exited = std::get_if<WorkerExited>(&event);
  if (exited != nullptr && exited->worker == id) {
    victim.code = exited->code;
    victim.signal = exited->signal;
    victim.ended_by_us = worker.kill_sent;
  }
  return victim;
}

Fate IncidentCollector::FateOf(Incarnation id, const Event& event) const {
  if (SubjectOf(event) == id) {
    if (const auto* lost = std::get_if<WorkerLost>(&event)) {
      return FateOfKind(lost->kind);
    }
    if (const auto* exited = std::get_if<WorkerExited>(&event)) {
      return exited->signal != 0 ? Fate::kKilled : Fate::kExited;
    }
    return Fate::kNotStarted;
  }
  const auto* peer = std::get_if<PeerLost>(&event);
  const auto* answer = std::get_if<SuspectAnswered>(&event);
  if (peer != nullptr && peer->stalled) {
    return Fate::kStalled;
  }
  if (answer != nullptr && answer->worker == id && !answer->alive) {
    return Fate::kGone;
  }
  if (IsTimer(event, TimerKind::kFormed)) {
    return Fate::kUnformed;
  }
  if (IsTimer(event, TimerKind::kSuspect)) {
    return Fate::kUnanswered;
  }
  if (IsTimer(event, TimerKind::kGrace)) {
    return Fate::kOverstayed;
  }
  const HostId& host = workers_.at(id).slot.host;
  if (const auto* lost = std::get_if<AgentLost>(&event); lost != nullptr && lost->host == host) {
    return Fate::kAgentLost;
  }
  if (suspected_.contains(host)) {
    return Fate::kAgentSilent;
  }
  // What is left: of a pair whose link breaks again and again one goes, though both are alive; and
  // --blame host stops what runs beside a failed worker.
  return peer != nullptr || answer != nullptr ? Fate::kExpelled : Fate::kSetAside;
}

// The code of a victim, wherever its incident is by now.
void IncidentCollector::LearnExit(const WorkerExited& event) {
  const Worker* worker = Find(event.worker);
  if (worker == nullptr || !worker->lost) {
    return;
  }
  const auto learn = [&](Change& change) {
    for (Victim& victim : change.incident.victims) {
      if (victim.worker != event.worker || victim.code) {
        continue;
      }
      victim.code = event.code;
      victim.signal = event.signal;
      if (victim.fate == Fate::kGone) {
        victim.fate = event.signal != 0 ? Fate::kKilled : Fate::kExited;
      } else {
        victim.ended_by_us = worker->kill_sent;
      }
      Add(change,
          Topic::kTrouble,
          {At(),
           "agent of host " + worker->slot.host.value,
           "the process of " + NameOfVictim(victim) + " " +
               (event.signal != 0 ? "was ended by " + SignalText(event.signal)
                                  : "ended with exit code " + std::to_string(event.code))});
    }
  };
  if (change_) {
    learn(*change_);
  }
  for (Change& change : late_) {
    learn(change);
  }
}

void IncidentCollector::ForgetGone(const Event& event) {
  if (const auto* lost = std::get_if<AgentLost>(&event)) {
    std::erase_if(workers_,
                  [lost](const auto& entry) { return entry.second.slot.host == lost->host; });
  } else if (std::holds_alternative<WorkerExited>(event) ||
             std::holds_alternative<SpawnFailed>(event)) {
    workers_.erase(*SubjectOf(event));
  }
}

}  // namespace muster::launcher
