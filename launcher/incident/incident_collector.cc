// The changes themselves: when one begins, what it is compared with, and when it is over.

#include "launcher/incident/incident_collector.h"

#include <algorithm>
#include <utility>

namespace muster::launcher {
namespace {

constexpr size_t kDecisionsMax = 16;

// On one line, since it is told in a list.
std::string Shortened(std::string text) {
  if (text.size() > kIncidentTextMax) {
    text.resize(kIncidentTextMax);
    text += "...";
  }
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

bool IsFailure(const Victim& victim) {
  return victim.fate != Fate::kDrained && victim.fate != Fate::kDone && victim.fate != Fate::kSpare;
}

bool Has(const std::vector<Victim>& victims, Fate fate) {
  return std::any_of(
      victims.begin(), victims.end(), [fate](const Victim& victim) { return victim.fate == fate; });
}

// With an agent goes all that could tell.
bool IsAwaited(const Victim& victim) {
  return IsFailure(victim) && !victim.code && victim.fate != Fate::kAgentLost &&
         victim.fate != Fate::kAgentSilent && victim.fate != Fate::kNotStarted;
}

}  // namespace

std::vector<Incident> IncidentCollector::Observe(const Event& event,
                                                 const Transition& transition,
                                                 const Membership& membership,
                                                 Instant now) {
  now_ = now;
  out_.clear();
  significant_ = false;
  if (ended_) {
    return {};
  }
  std::visit([this](const auto& concrete) { Note(concrete); }, event);
  SeeLosses(event, transition, membership);
  const FormWorld* form = nullptr;
  bool revoked = false;
  const FinishJob* finish = nullptr;
  for (const Effect& effect : transition.effects) {
    std::visit([&](const auto& concrete) { See(concrete, event); }, effect);
    form = std::holds_alternative<FormWorld>(effect) ? std::get_if<FormWorld>(&effect) : form;
    finish = std::holds_alternative<FinishJob>(effect) ? std::get_if<FinishJob>(&effect) : finish;
    revoked |= std::holds_alternative<Revoke>(effect);
  }
  // Beside a new world it concerns only those of the old one that are done.
  if (revoked && form == nullptr) {
    SeeRevoke(event);
  }
  SeePhase(membership);
  ForgetGone(event);
  Decide(transition.reason);
  WriteHold();
  if (change_ && change_->incident.phases.synced) {
    Close(Outcome::kRuns);
  }
  if (finish != nullptr) {
    EndNow(finish->code, finish->cause);
  }
  WriteLate(ended_);
  return std::exchange(out_, {});
}

std::vector<Incident> IncidentCollector::End(int code, const std::string& cause, Instant now) {
  now_ = now;
  out_.clear();
  if (!ended_) {
    EndNow(code, cause);
    WriteLate(true);
  }
  return std::exchange(out_, {});
}

void IncidentCollector::See(const SpawnWorker& effect, const Event& /*event*/) {
  workers_[effect.worker].slot = effect.slot;
}

void IncidentCollector::See(const KillWorker& effect, const Event& /*event*/) {
  if (Worker* worker = Find(effect.worker)) {
    worker->kill_sent = true;
    worker->dismissed |= !worker->lost && !worker->rank;
  }
}

void IncidentCollector::See(const Release& effect, const Event& /*event*/) {
  for (const Incarnation id : effect.workers) {
    if (Worker* worker = Find(id)) {
      worker->dismissed |= !worker->rank;
    }
  }
}

void IncidentCollector::See(const Drain& effect, const Event& /*event*/) {
  Change& change = Begin(Topic::kRemoval);
  for (const Incarnation id : effect.workers) {
    if (Worker* worker = Find(id)) {
      worker->draining = true;
    }
  }
  if (!change.incident.phases.revoke) {
    change.incident.phases.revoke = At();
  }
  significant_ = true;
}

void IncidentCollector::See(const NotifyPending& effect, const Event& /*event*/) {
  const bool planned = change_ && !change_->incident.phases.form && change_->incident.number == 0 &&
                       change_->incident.victims.empty() && !change_->revoked;
  if (!effect.pending && planned) {
    change_.reset();  // The wish has vanished before anything came of it.
    return;
  }
  if (!effect.pending) {
    return;
  }
  Change& change = planned ? *change_ : Begin(Topic::kGrowth);
  if (!change.incident.phases.revoke) {
    change.incident.phases.revoke = At();
  }
  significant_ = true;
}

void IncidentCollector::SeeRevoke(const Event& event) {
  Change& change = Begin(Topic::kTrouble);
  if (!std::exchange(change.revoked, true)) {
    change.incident.phases.revoke = At();
  }
  change.link_broke |= std::holds_alternative<PeerLost>(event);
  significant_ = true;
}

void IncidentCollector::See(const FormWorld& effect, const Event& event) {
  if (generation_.value > 0) {
    const bool open = change_ && !change_->incident.phases.form;
    const auto* timer = std::get_if<TimerFired>(&event);
    const bool late = timer != nullptr && timer->timer.kind == TimerKind::kFormed;
    const bool failed = !open && (late || std::holds_alternative<WorkerFormed>(event));
    Change& change = open ? *change_ : Begin(failed ? Topic::kTrouble : Topic::kGrowth);
    change.formation_failed |= failed;
    std::set<Incarnation> next;
    for (const Member& member : effect.members) {
      next.insert(member.worker);
    }
    LeaveBehind(next);
    TakeIn(effect);
    change.unformed = change.unsynced = next;
    change.incident.phases.form = At();
    significant_ = true;
  }
  generation_ = effect.generation;
  members_.clear();
  for (const Member& member : effect.members) {
    Worker& worker = workers_[member.worker];
    worker.slot = member.slot;
    worker.rank = static_cast<uint32_t>(members_.size());
    worker.draining = false;
    members_.push_back(member.worker);
  }
}

// Its slot is not there any more, or its host is to go.
bool IncidentCollector::IsWithdrawn(const Worker& worker) const {
  const auto listed = listed_.find(worker.slot.host);
  return worker.draining || drain_requested_.contains(worker.slot.host) ||
         listed == listed_.end() || worker.slot.index >= listed->second;
}

void IncidentCollector::LeaveBehind(const std::set<Incarnation>& next) {
  std::set<HostId> hosts;
  for (const Incarnation id : members_) {
    Worker* worker = Find(id);
    if (worker == nullptr || next.contains(id)) {
      continue;
    }
    if (!worker->lost) {
      const Fate fate = worker->done           ? Fate::kDone
                        : IsWithdrawn(*worker) ? Fate::kDrained
                                               : Fate::kSpare;
      Add(*change_, {id, worker->slot, worker->rank, worker->pid, fate, std::nullopt, 0, false});
      worker->dismissed = fate == Fate::kDrained;
      if (fate == Fate::kDrained) {
        hosts.insert(worker->slot.host);
      }
    }
    worker->rank.reset();
  }
  Adopt(*change_, Topic::kRemoval, &hosts);
}

void IncidentCollector::TakeIn(const FormWorld& effect) {
  Incident& incident = change_->incident;
  incident.generation_after = effect.generation;
  incident.size_after = static_cast<uint32_t>(effect.members.size());
  const std::set<Incarnation> before(members_.begin(), members_.end());
  std::set<HostId> hosts;
  for (uint32_t rank = 0; rank < effect.members.size(); ++rank) {
    const Member& member = effect.members[rank];
    if (before.contains(member.worker)) {
      continue;
    }
    hosts.insert(member.slot.host);
    if (incident.newcomers.size() < kIncidentEntriesMax) {
      incident.newcomers.push_back({member.worker, member.slot, rank});
    } else {
      ++incident.left_out;
    }
  }
  Adopt(*change_, Topic::kGrowth, &hosts);
}

void IncidentCollector::SeePhase(const Membership& membership) {
  const bool ends = membership.phase() == "ending" || membership.finished();
  if (ends && !std::exchange(ending_, true)) {
    Adopt(Begin(Topic::kEnd), Topic::kTrouble);
    significant_ = true;
  }
  if (membership.phase() == "holding" && change_ && !change_->hold_told) {
    change_->hold_told = significant_ = true;
  }
}

// Of this topic; of any if nothing was said of it, or if the job's end cuts another change short.
Duration IncidentCollector::FirstWord(const Change& change, Topic topic) const {
  const auto of_topic = change.first_word.find(topic);
  if (of_topic != change.first_word.end() && topic != Topic::kEnd) {
    return of_topic->second;
  }
  Duration first = At();
  for (const auto& [other, at] : change.first_word) {
    first = std::min(first, at);
  }
  return first;
}

// The change that the topic belongs to: the one under way, unless its world has been ordered.
IncidentCollector::Change& IncidentCollector::Begin(Topic topic) {
  if (change_ && change_->incident.phases.form) {
    Close(Outcome::kOvertaken);
  }
  if (!change_) {
    change_.emplace();
    change_->incident.generation_before = generation_;
    change_->incident.size_before = static_cast<uint32_t>(members_.size());
  }
  if (topic == Topic::kTrouble || topic == Topic::kEnd) {
    Adopt(*change_, topic);  // The others once it is known which hosts they concern.
  }
  change_->first_word.emplace(topic, At());
  return *change_;
}

void IncidentCollector::Adopt(Change& change, Topic topic, const std::set<HostId>* hosts) {
  std::erase_if(clues_, [&](const Clue& clue) {
    const bool fits = clue.topic == topic && (hosts == nullptr || hosts->contains(clue.host));
    if (fits) {
      Add(change, topic, clue.evidence);
    }
    return fits;
  });
}

void IncidentCollector::Add(Change& change, Topic topic, const Evidence& evidence) {
  const auto [first, is_new] = change.first_word.emplace(topic, evidence.at);
  first->second = std::min(first->second, evidence.at);
  if (change.incident.evidence.size() >= kIncidentEntriesMax) {
    ++change.incident.left_out;
    return;
  }
  change.incident.evidence.push_back({evidence.at, evidence.from, Shortened(evidence.text)});
}

void IncidentCollector::Add(Change& change, const Victim& victim) {
  if (change.incident.victims.size() >= kIncidentEntriesMax) {
    ++change.incident.left_out;
    return;
  }
  change.incident.victims.push_back(victim);
}

void IncidentCollector::Decide(const std::string& reason) {
  if (significant_ && change_ && !reason.empty() &&
      change_->incident.decisions.size() < kDecisionsMax) {
    change_->incident.decisions.push_back({At(), "membership", Shortened(reason)});
  }
}

void IncidentCollector::Close(Outcome outcome) {
  Complete(*change_, outcome);
  late_.push_back(std::move(*change_));
  change_.reset();
  // What led to nothing is no evidence of the next trouble; that an agent is not heard may be.
  std::erase_if(clues_, [this](const Clue& clue) {
    const bool is_news = clue.evidence.at == At();
    return clue.topic == Topic::kTrouble && !is_news && !suspected_.contains(clue.host);
  });
}

void IncidentCollector::Complete(Change& change, Outcome outcome) {
  Incident& incident = change.incident;
  const bool failed = std::any_of(incident.victims.begin(), incident.victims.end(), IsFailure);
  const bool planned = incident.phases.form.has_value() || !incident.exit_code;
  incident.kind = outcome == Outcome::kSame               ? IncidentKind::kNewcomer
                  : failed                                ? IncidentKind::kLoss
                  : change.link_broke                     ? IncidentKind::kLink
                  : change.formation_failed               ? IncidentKind::kFormation
                  : !planned                              ? IncidentKind::kEnd
                  : Has(incident.victims, Fate::kDrained) ? IncidentKind::kRemoval
                  : incident.newcomers.empty()            ? IncidentKind::kRemoval
                                                          : IncidentKind::kGrowth;
  const Topic topic = incident.kind == IncidentKind::kRemoval  ? Topic::kRemoval
                      : incident.kind == IncidentKind::kGrowth ? Topic::kGrowth
                      : incident.kind == IncidentKind::kEnd    ? Topic::kEnd
                                                               : Topic::kTrouble;
  incident.phases.evidence = FirstWord(change, topic);
  if (incident.phases.revoke < incident.phases.evidence) {
    incident.phases.revoke.reset();  // It was told of another change, which this one has overtaken.
  }
  std::stable_sort(incident.evidence.begin(),
                   incident.evidence.end(),
                   [](const Evidence& a, const Evidence& b) { return a.at < b.at; });
  if (!incident.resumed) {
    incident.newest_known = newest_known_;
  }
  incident.outcome = outcome;
  if (incident.number == 0) {
    incident.number = ++last_number_;
  }
  change.closed = now_;
}

// Somebody may ask why the job does nothing while it waits.
void IncidentCollector::WriteHold() {
  if (change_ && change_->hold_told && significant_ && !change_->incident.phases.form) {
    Complete(*change_, Outcome::kHolds);
    out_.push_back(change_->incident);
  }
}

void IncidentCollector::WriteLate(bool all) {
  std::erase_if(late_, [&](const Change& change) {
    const auto& victims = change.incident.victims;
    const bool awaits = std::any_of(victims.begin(), victims.end(), IsAwaited);
    const bool over = all || !awaits || now_ - change.closed >= kLateFactsTime;
    if (over) {
      out_.push_back(change.incident);
    }
    return over;
  });
}

void IncidentCollector::EndNow(int code, const std::string& cause) {
  Change& change = Begin(Topic::kEnd);
  change.incident.exit_code = code;
  change.incident.cause = Shortened(cause);
  Close(Outcome::kEnded);
  ended_ = true;
}

}  // namespace muster::launcher
