// What events say, before it is known whether a change of world follows. The texts are for people;
// nothing parses them.

#include <algorithm>
#include <utility>

#include "launcher/incident/incident_collector.h"

namespace muster::launcher {
namespace {

// Clues that never became part of an incident are forgotten, the oldest first.
constexpr size_t kCluesMax = 64;

std::string Ranks(const std::vector<uint32_t>& ranks) {
  constexpr size_t kShown = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < std::min(ranks.size(), kShown); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return text + (ranks.size() > kShown ? ", ..." : "");
}

std::string WithDetail(const std::string& text, const std::string& detail) {
  return detail.empty() ? text : text + ": " + detail;
}

}  // namespace

IncidentCollector::Worker* IncidentCollector::Find(Incarnation worker) {
  const auto found = workers_.find(worker);
  return found == workers_.end() ? nullptr : &found->second;
}

std::string IncidentCollector::NameOf(Incarnation worker) const {
  const auto found = workers_.find(worker);
  if (found == workers_.end()) {
    return "worker " + std::to_string(worker.value);
  }
  const Worker& known = found->second;
  return known.rank ? "rank " + std::to_string(*known.rank)
                    : "the worker on slot " + std::to_string(known.slot.index);
}

void IncidentCollector::Say(Topic topic, Clue clue) {
  clue.topic = topic;
  clue.evidence.at = At();
  // The world has not changed yet, so what is still to come belongs to the change under way.
  if (change_ && !change_->incident.phases.form && change_->first_word.contains(topic)) {
    Add(*change_, topic, clue.evidence);
    return;
  }
  clues_.push_back(std::move(clue));
  if (clues_.size() > kCluesMax) {
    clues_.pop_front();
  }
}

void IncidentCollector::SayOf(Topic topic, Incarnation worker, const std::string& text) {
  const Worker* known = Find(worker);
  if (known != nullptr) {
    Say(topic,
        {topic, known->slot.host, worker, {{}, "agent of host " + known->slot.host.value, text}});
  }
}

void IncidentCollector::LearnHeld(const std::optional<CommitId>& held) {
  newest_known_ = std::max(newest_known_, held);
}

void IncidentCollector::Note(const HostsDiscovered& event) {
  std::map<HostId, uint32_t> listed;
  for (const HostSlots& host : event.hosts) {
    listed[host.host] = host.slots;
  }
  std::swap(listed, listed_);  // From here on `listed` is the older one.
  if (generation_.value == 0) {
    return;
  }
  for (const auto& [host, slots] : listed_) {
    const auto before = listed.find(host);
    const uint32_t had = before == listed.end() ? 0 : before->second;
    const std::string now = "host " + host.value + " is listed with " + std::to_string(slots) +
                            (slots == 1 ? " slot" : " slots");
    const std::string text = had == 0 ? now : now + ", before with " + std::to_string(had);
    if (slots != had) {
      Say(slots > had ? Topic::kGrowth : Topic::kRemoval, {{}, host, {}, {{}, "discovery", text}});
    }
  }
  for (const auto& [host, slots] : listed) {
    if (!listed_.contains(host)) {
      drain_requested_.erase(host);
      Say(Topic::kRemoval,
          {{}, host, {}, {{}, "discovery", "host " + host.value + " is not listed any more"}});
    }
  }
}

void IncidentCollector::Note(const AgentReattached& event) {
  suspected_.erase(event.host);
  std::erase_if(clues_, [&](const Clue& clue) {
    return clue.topic == Topic::kTrouble && clue.host == event.host && clue.worker.value == 0;
  });
}

void IncidentCollector::Note(const AgentSuspected& event) {
  for (const HostId& host : event.hosts) {
    suspected_.insert(host);
    Say(Topic::kTrouble,
        {{}, host, {}, {{}, "driver", "the agent of host " + host.value + " is not heard"}});
  }
}

void IncidentCollector::Note(const AgentLost& event) {
  suspected_.erase(event.host);
  Say(Topic::kTrouble,
      {{},
       event.host,
       {},
       {{},
        "driver",
        WithDetail("the agent of host " + event.host.value + " is lost", event.evidence)}});
}

// Later a host that cannot be reached is tried again and again: no news.
void IncidentCollector::Note(const AgentStartFailed& event) {
  if (generation_.value == 0) {
    Say(Topic::kTrouble,
        {{},
         event.host,
         {},
         {{}, "driver", WithDetail("no agent on host " + event.host.value, event.message)}});
  }
}

void IncidentCollector::Note(const WorkerStarted& event) {
  if (Worker* worker = Find(event.worker)) {
    worker->pid = event.pid;
  }
}

void IncidentCollector::Note(const SpawnFailed& event) {
  SayOf(Topic::kTrouble,
        event.worker,
        WithDetail(NameOf(event.worker) + " could not be started", event.message));
}

void IncidentCollector::Note(const WorkerWarm& event) {
  SayOf(Topic::kGrowth, event.worker, NameOf(event.worker) + " is ready");
}

void IncidentCollector::Note(const WorkerFormed& event) {
  LearnHeld(event.held);
  if (!change_ || event.generation != generation_ || !change_->incident.phases.form) {
    return;
  }
  change_->unformed.erase(event.worker);
  if (change_->unformed.empty() && !change_->incident.phases.formed) {
    change_->incident.phases.formed = At();
  }
}

void IncidentCollector::Note(const WorkerLeft& event) {
  LearnHeld(event.held);
}

void IncidentCollector::Note(const WorkerSynced& event) {
  if (change_ && event.generation == generation_ && change_->incident.phases.form) {
    Incident& incident = change_->incident;
    if (!incident.resumed) {
      incident.resumed = event.commit;
      incident.newest_known = newest_known_;  // Before this one says more.
    }
    change_->unsynced.erase(event.worker);
    if (change_->unsynced.empty()) {
      incident.phases.synced = At();
    }
  }
  LearnHeld(event.commit);
}

void IncidentCollector::Note(const WorkerDone& event) {
  if (Worker* worker = Find(event.worker)) {
    worker->done = true;
  }
}

void IncidentCollector::Note(const WorkerRunning& event) {
  if (Worker* worker = Find(event.worker)) {
    worker->done = false;
  }
}

void IncidentCollector::Note(const WorkerLost& event) {
  const std::string name = NameOf(event.worker);
  const std::string text =
      event.kind == LossKind::kFrozen   ? name + " is frozen"
      : event.kind == LossKind::kSilent ? name + " is silent"
      : event.kind == LossKind::kStalled
          ? name + " is stalled"
          : "the kernel took back the lock that " + name + " holds while it lives";
  SayOf(Topic::kTrouble, event.worker, WithDetail(text, event.evidence));
}

void IncidentCollector::Note(const WorkerExited& event) {
  const Worker* worker = Find(event.worker);
  const bool is_well = worker != nullptr && worker->done && event.code == 0;
  if (worker == nullptr || worker->lost || worker->dismissed || is_well || ending_) {
    return;
  }
  const std::string how = event.signal != 0 ? "was ended by " + SignalText(event.signal)
                                            : "ended with exit code " + std::to_string(event.code);
  const std::string whose = worker->pid == 0 ? "" : ", pid " + std::to_string(worker->pid) + ",";
  SayOf(
      Topic::kTrouble, event.worker, "the process of " + NameOf(event.worker) + whose + " " + how);
}

void IncidentCollector::Note(const PeerLost& event) {
  if (event.generation != generation_) {
    return;
  }
  const Worker* reporter = Find(event.reporter);
  const HostId host = reporter == nullptr ? HostId{} : reporter->slot.host;
  const std::string suspects = Ranks(event.suspect_ranks);
  const std::string what = event.stalled ? suspects + " did not come to a collective"
                                         : "its link to " + suspects + " broke";
  Say(Topic::kTrouble,
      {{},
       host,
       {},
       {{}, NameOf(event.reporter) + " on host " + host.value, WithDetail(what, event.evidence)}});
}

void IncidentCollector::Note(const SuspectAnswered& event) {
  SayOf(Topic::kTrouble,
        event.worker,
        NameOf(event.worker) + (event.alive ? " is alive" : " is gone"));
}

void IncidentCollector::Note(const DrainRequested& event) {
  drain_requested_.insert(event.host);
  Say(Topic::kRemoval,
      {{},
       event.host,
       {},
       {{}, "agent of host " + event.host.value, "it was told to end by SIGTERM"}});
}

void IncidentCollector::Note(const StopRequested& event) {
  Say(Topic::kEnd,
      {{}, {}, {}, {{}, "driver", "it was told to stop by " + SignalText(event.signal)}});
}

void IncidentCollector::Note(const TimerFired& event) {
  if (event.timer.kind == TimerKind::kFormed && change_ && !change_->unformed.empty()) {
    const std::string left = std::to_string(change_->unformed.size());
    Say(Topic::kTrouble,
        {{}, {}, {}, {{}, "driver", left + " of its members have not formed the world in time"}});
  } else if (event.timer.kind == TimerKind::kElastic) {
    Say(Topic::kTrouble, {{}, {}, {}, {{}, "driver", "the time to wait for workers is over"}});
  } else if (event.timer.kind == TimerKind::kGrace) {
    const Incarnation worker{event.timer.subject};
    const auto found = workers_.find(worker);
    if (found != workers_.end() && found->second.rank) {
      Say(Topic::kRemoval,
          {{},
           found->second.slot.host,
           worker,
           {{}, "driver", NameOf(worker) + " has not left within its grace"}});
    }
  }
}

}  // namespace muster::launcher
