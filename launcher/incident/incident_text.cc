#include "launcher/incident/incident_text.h"

#include <array>
#include <cstdio>

#include "launcher/core/membership.h"
#include "launcher/incident/advice.h"

namespace muster::launcher {
namespace {

constexpr size_t kNamesShown = 4;

std::string Number(const char* format, double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

std::string Count(size_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string NameOf(const Victim& victim) {
  return victim.rank ? "rank " + std::to_string(*victim.rank) + " on host " + victim.slot.host.value
                     : "the new worker on slot " + std::to_string(victim.slot.index) + " of host " +
                           victim.slot.host.value;
}

std::string Ending(const Victim& victim) {
  if (victim.signal != 0) {
    return "was killed by " + SignalText(victim.signal);
  }
  return victim.code ? "exited with code " + std::to_string(*victim.code) : "died";
}

std::string FateText(const Victim& victim) {
  switch (victim.fate) {
    case Fate::kGone:
      return "died (how is not known)";
    case Fate::kKilled:
    case Fate::kExited:
      return Ending(victim) + (victim.ended_by_us ? ", as Muster had told it to end" : "");
    case Fate::kFrozen:
      return "was frozen: its process was stopped";
    case Fate::kSilent:
      return "was silent: its process did not react any more";
    case Fate::kStalled:
      return "was stalled: the others waited for it in a collective";
    case Fate::kAgentLost:
      return "was lost with the agent of its host";
    case Fate::kAgentSilent:
      return "was given up: the agent of its host is not heard";
    case Fate::kUnanswered:
      return "was given up: its agent did not say that it lives";
    case Fate::kExpelled:
      return "was expelled: its links broke again and again";
    case Fate::kUnformed:
      return "did not take its place in the new world in time";
    case Fate::kOverstayed:
      return "was told to leave and did not within its grace";
    case Fate::kSetAside:
      return "was stopped, for its host is set aside (--blame host)";
    case Fate::kNotStarted:
      return "could not be started";
    case Fate::kDrained:
      return "left on purpose";
    case Fate::kDone:
      return "had done its work";
    case Fate::kSpare:
      return "was put aside as a spare";
  }
  return "";
}

bool IsFailure(const Victim& victim) {
  return victim.fate < Fate::kDrained;
}

// "rank 1 on host a was ...; rank 2 on host b was ..."
std::string TellVictims(const std::vector<Victim>& victims, bool failures) {
  std::string text;
  size_t count = 0;
  for (const Victim& victim : victims) {
    if (IsFailure(victim) != failures) {
      continue;
    }
    if (++count <= kNamesShown) {
      text += (text.empty() ? "" : "; ") + NameOf(victim) + " " + FateText(victim);
    }
  }
  return text +
         (count > kNamesShown ? "; and " + std::to_string(count - kNamesShown) + " more" : "");
}

std::string TellNewcomers(const std::vector<Newcomer>& newcomers) {
  std::string text;
  for (size_t i = 0; i < newcomers.size() && i < kNamesShown; ++i) {
    text += (i == 0 ? "" : ", ") + std::string("rank ") + std::to_string(newcomers[i].rank) +
            " on host " + newcomers[i].slot.host.value;
  }
  return text + (newcomers.size() > kNamesShown ? ", ..." : "");
}

std::string AtText(Duration at) {
  return Number("%.3f s", static_cast<double>(at.count()) / 1e6);
}

std::string Who(const Victim& victim) {
  return NameOf(victim) + " was worker " + std::to_string(victim.worker.value) + ", slot " +
         std::to_string(victim.slot.index) +
         (victim.pid == 0 ? "" : ", pid " + std::to_string(victim.pid)) +
         (IsFailure(victim) && victim.ended_by_us && victim.code
              ? "; Muster ended its process (" + Ending(victim) + ")"
              : "");
}

std::string TellWho(const Incident& incident) {
  std::string text;
  size_t shown = 0;
  for (const Victim& victim : incident.victims) {
    if (++shown <= kNamesShown) {
      text += "  Who: " + Who(victim) + ".\n";
    }
  }
  if (!incident.newcomers.empty()) {
    text += "  New: " + TellNewcomers(incident.newcomers) + ".\n";
  }
  return text;
}

std::string TellEvidence(const Incident& incident) {
  std::string text;
  for (const Evidence& evidence : incident.evidence) {
    text += "    at " + AtText(evidence.at) + ", " + evidence.from + ": " + evidence.text + "\n";
  }
  return text.empty() ? "" : "  How we know:\n" + text;
}

std::string WorldText(Generation generation, uint32_t size) {
  return "world " + std::to_string(generation.value) + " of " + Count(size, "worker");
}

std::string TellDecision(const Incident& incident) {
  if (incident.kind == IncidentKind::kEnd) {
    return "";  // The headline has it.
  }
  std::string text = "  What was decided: ";
  if (incident.outcome == Outcome::kSame) {
    text += "nothing had to change; the slot rests and is tried again.";
  } else if (incident.generation_after.value != 0) {
    text += WorldText(incident.generation_before, incident.size_before) + " was followed by " +
            WorldText(incident.generation_after, incident.size_after) + ".";
  } else if (incident.outcome == Outcome::kHolds) {
    text += WorldText(incident.generation_before, incident.size_before) +
            " was revoked; the survivors wait, alive, for there are too few for another one.";
  } else if (incident.exit_code) {
    text += "the job ended with code " + std::to_string(*incident.exit_code) + ": " +
            incident.cause + ".";
  } else {
    text += WorldText(incident.generation_before, incident.size_before) +
            " was given up; the next incident goes on from here.";
  }
  text += "\n";
  for (const Evidence& decision : incident.decisions) {
    text += "    at " + AtText(decision.at) + ": " + decision.text + "\n";
  }
  return text;
}

std::string TellPhases(const Incident& incident) {
  const Phases& phases = incident.phases;
  const bool planned =
      incident.kind == IncidentKind::kRemoval || incident.kind == IncidentKind::kGrowth;
  const std::array<std::pair<std::optional<Duration>, const char*>, 4> steps{{
      {phases.revoke,
       planned ? "until the members were told" : "until the members were told to stop"},
      {phases.form, "until the next world was ordered"},
      {phases.formed, "until all had formed it"},
      {phases.synced, "until all had synced, the last that the driver sees"},
  }};
  if (!phases.evidence) {
    return "";
  }
  std::string text;
  Duration last = *phases.evidence;
  for (const auto& [at, what] : steps) {
    if (at) {
      text += (text.empty() ? "" : ", then ") + TimeText(*at - last) + " " + what;
      last = *at;
    }
  }
  if (text.empty()) {
    return "";
  }
  return "  How long it took, from the first evidence: " + text + "; " +
         TimeText(last - *phases.evidence) + " in all" +
         (phases.synced                             ? ""
          : incident.outcome == Outcome::kOvertaken ? ", when something else overtook it"
                                                    : ", and no further") +
         ".\n";
}

std::string CommitText(const CommitId& commit) {
  return std::to_string(commit.generation) + "." + std::to_string(commit.sequence);
}

// What the driver cannot know it does not say: it sees commits, and no steps.
std::string TellLoss(const Incident& incident) {
  const bool planned =
      incident.kind == IncidentKind::kRemoval || incident.kind == IncidentKind::kGrowth;
  if (incident.generation_after.value == 0 || incident.outcome == Outcome::kSame) {
    return "";
  }
  const std::string start = "  What was lost: ";
  if (!incident.resumed) {
    return start + "unknown, for the new world has not synced.\n";
  }
  const std::string from = "commit " + CommitText(*incident.resumed);
  if (planned && incident.newest_known <= incident.resumed) {
    return start + "nothing; the change was made at " + from + ".\n";
  }
  const std::string repeated =
      "; the steps since then were done again (how many, the driver does not see)";
  if (incident.newest_known <= incident.resumed) {
    return start + "no commit that is known of. All went on from " + from + repeated + ".\n";
  }
  const CommitId& newest = *incident.newest_known;
  const std::string count = newest.generation == incident.resumed->generation
                                ? Count(newest.sequence - incident.resumed->sequence, "commit")
                                : "an unknown number of commits";
  return start + count + ": somebody held " + CommitText(newest) + ", and all went on from " +
         from + repeated + ".\n";
}

std::string TellAdvice(const Incident& incident) {
  std::string text;
  for (const std::string& advice : AdviceFor(incident)) {
    text += "  What to do: " + advice + "\n";
  }
  return text;
}

}  // namespace

std::string TimeText(Duration time) {
  const double seconds = static_cast<double>(time.count()) / 1e6;
  const auto whole = static_cast<uint64_t>(seconds + 0.5);
  if (seconds < 1) {
    return Number("%.1f ms", seconds * 1e3);
  }
  if (seconds < 60) {
    return Number("%.1f s", seconds);
  }
  if (whole < 3600) {
    return std::to_string(whole / 60) + " min " + std::to_string(whole % 60) + " s";
  }
  return std::to_string(whole / 3600) + " h " + std::to_string(whole / 60 % 60) + " min";
}

std::string Headline(const Incident& incident) {
  std::string text;
  switch (incident.kind) {
    case IncidentKind::kLoss:
      text = TellVictims(incident.victims, true);
      break;
    case IncidentKind::kNewcomer:
      text = TellVictims(incident.victims, true) + ", before it was a member";
      break;
    case IncidentKind::kLink:
      text = "a link between members broke, and all of them live";
      break;
    case IncidentKind::kFormation:
      text = WorldText(incident.generation_before, incident.size_before) + " did not come about";
      break;
    case IncidentKind::kRemoval:
      text = incident.victims.empty() ? "the world changed without a loss"
                                      : TellVictims(incident.victims, false);
      break;
    case IncidentKind::kGrowth:
      text = Count(incident.newcomers.size(), "worker") +
             " joined: " + TellNewcomers(incident.newcomers);
      break;
    case IncidentKind::kEnd:
      break;
  }
  if (incident.exit_code) {
    text += (text.empty() ? "" : "; with that ") + std::string("the job ended with code ") +
            std::to_string(*incident.exit_code);
  }
  return incident.kind == IncidentKind::kEnd ? text + ": " + incident.cause : text;
}

std::string TellIncident(const Incident& incident, const JobRecord& job, const ClockText& clock) {
  const Duration at = incident.phases.evidence.value_or(Duration::zero());
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(at).count();
  std::string text = "#" + std::to_string(incident.number) + ", " + clock(job.started_ms + ms) +
                     ", " + TimeText(at) + " after the start: " + Headline(incident) + ".\n" +
                     TellWho(incident) + TellEvidence(incident) + TellDecision(incident) +
                     TellPhases(incident) + TellLoss(incident) + TellAdvice(incident);
  if (incident.left_out > 0) {
    text +=
        "  (" + std::to_string(incident.left_out) + " more entries did not fit into the record.)\n";
  }
  return text;
}

}  // namespace muster::launcher
