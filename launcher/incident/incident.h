#pragma once

// Incident: one change of world as a value: who, what, how we know, what was decided, how long it
// took and what was lost. Times count from the start of the job. Plain data, which the collector
// fills, incident_json writes and reads, and incident_text tells; the fields stand in
// docs/incidents.md.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/ids.h"

namespace muster::launcher {

/// What changed the world. The first one in this order that applies.
enum class IncidentKind : uint8_t {
  kLoss,       // A member was lost.
  kLink,       // A link between members broke, and all of them live.
  kFormation,  // A world was ordered, and did not come about.
  kRemoval,    // Members left on purpose.
  kGrowth,     // Newcomers came in.
  kNewcomer,   // One failed before it was a member: the world stays.
  kEnd,        // The job ended, with none of the above.
};

/// How far the change had come when the record was made.
enum class Outcome : uint8_t {
  kRuns,       // All members of the new world have synced.
  kOvertaken,  // The next change began before that.
  kHolds,      // Too few workers: the survivors wait. A later record replaces this one.
  kEnded,      // The job ended with it.
  kSame,       // The world did not change.
};

/// What became of a worker that is not in the next world.
enum class Fate : uint8_t {
  kGone,         // The kernel says that its process died; its code has not come.
  kKilled,       // By a signal.
  kExited,       // By itself, with a code.
  kFrozen,       // Stopped by a signal.
  kSilent,       // Its engine did nothing any more.
  kStalled,      // Others waited for it in a collective for too long.
  kAgentLost,    // The agent of its host is gone.
  kAgentSilent,  // The agent of its host is not heard, and the others went on.
  kUnanswered,   // Its agent did not say that it lives.
  kExpelled,     // Its links broke again and again.
  kUnformed,     // It did not take its place in a new world in time.
  kOverstayed,   // It was told to leave and did not.
  kSetAside,     // Stopped with its host (--blame host).
  kNotStarted,   // Its program could not be started.
  kDrained,      // Left on purpose.
  kDone,         // Had returned from its training function.
  kSpare,        // Well, and kept beside the world.
};

struct Evidence {
  Duration at{};
  std::string from;  // Who said it.
  std::string text;
  bool operator==(const Evidence&) const = default;
};

struct Victim {
  Incarnation worker;
  SlotId slot;
  std::optional<uint32_t> rank;  // Nothing: it was no member.
  int64_t pid = 0;               // 0: unknown.
  Fate fate = Fate::kGone;
  std::optional<int> code;  // Exit code, or 128 + signal.
  int signal = 0;
  bool ended_by_us = false;  // Code and signal are those of the end that Muster gave it.
  bool operator==(const Victim&) const = default;
};

struct Newcomer {
  Incarnation worker;
  SlotId slot;
  uint32_t rank = 0;
  bool operator==(const Newcomer&) const = default;
};

/// When each phase was over; nothing: it never was. The driver sees no steps, so the last one is
/// that all members have synced, after which each calls the training function at once.
struct Phases {
  std::optional<Duration> evidence;  // The first word of it.
  std::optional<Duration> revoke;    // Members were told to stop; in a planned change: to leave.
  std::optional<Duration> form;
  std::optional<Duration> formed;
  std::optional<Duration> synced;
  bool operator==(const Phases&) const = default;
};

struct Incident {
  uint64_t number = 0;  // Of this job, from 1; a later record with the same number replaces it.
  IncidentKind kind = IncidentKind::kEnd;
  Outcome outcome = Outcome::kRuns;
  Generation generation_before;
  Generation generation_after;  // 0: no world has followed.
  uint32_t size_before = 0;
  uint32_t size_after = 0;
  std::vector<Victim> victims;
  std::vector<Newcomer> newcomers;
  size_t left_out = 0;  // Victims, newcomers and evidence beyond what a record holds.
  std::vector<Evidence> evidence;
  std::vector<Evidence> decisions;  // Of Membership, in its words.
  Phases phases;
  std::optional<CommitId> newest_known;  // The newest commit that anybody was known to hold.
  std::optional<CommitId> resumed;       // The one that the new world has synced.
  std::optional<int> exit_code;          // Of the job, if it ended.
  std::string cause;
  bool operator==(const Incident&) const = default;
};

/// The first record of a job.
struct JobRecord {
  std::string id;
  std::string command;
  std::string version;
  std::string host;  // Of the driver.
  int64_t pid = 0;
  int64_t started_ms = 0;  // Since 1970.
  bool elastic = false;
  bool operator==(const JobRecord&) const = default;
};

}  // namespace muster::launcher
