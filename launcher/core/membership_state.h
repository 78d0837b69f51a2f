#pragma once

// What Membership remembers: workers, hosts, the newest world, and the phase of the job. Plain
// values without behaviour beyond what follows from their own fields; the decisions are in
// membership*.cc.
//
// Not part of the interface: only membership.h and its sources include it.

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/clock.h"
#include "common/ids.h"
#include "launcher/core/membership_types.h"

namespace muster::launcher {

inline constexpr Duration kLossWindowTime = std::chrono::milliseconds(3);
inline constexpr Duration kSettleTime = std::chrono::milliseconds(500);
inline constexpr Duration kFormedTime = std::chrono::seconds(5);
inline constexpr Duration kSuspectTime = std::chrono::milliseconds(50);
/// An agent that is alive and still has not answered by then never will.
inline constexpr Duration kSuspectOverdueTime = std::chrono::seconds(5);
/// When nobody could be reached and one agent is back: as long have the others to be back too.
inline constexpr Duration kReturnTime = std::chrono::seconds(2);
/// By this long after the lease the driver has told what became of a silent agent.
inline constexpr Duration kLeaseMargin = std::chrono::seconds(2);
inline constexpr Duration kBreaksMemory = std::chrono::seconds(60);
inline constexpr size_t kBreaksToExpel = 3;
inline constexpr uint32_t kHopelessFailures = 2;
/// Formations in a row that may fail for everyone.
inline constexpr uint32_t kFormationsToFail = 3;

/// "signal 9 (SIGKILL)".
std::string SignalText(int signal);

/// Where a worker stands. Its process may exist in every stage but the first.
enum class Stage : uint8_t {
  kPlanned,    // Has an incarnation and a slot; its host's agent is not up yet.
  kSpawned,    // Has not called init() yet.
  kJoined,     // Has called init(), is on its way to the first sync.
  kWarm,       // Ready to be a member.
  kMember,     // Of the newest world, standing or revoked.
  kDrained,    // Left the world on purpose; keeps its commit until released.
  kEpilogue,   // Done in a world that has been followed by another one.
  kDismissed,  // Told to go: neither success nor failure, whatever its code.
  kLost,       // Out of the job; its process is not gone yet.
};
inline constexpr size_t kStageCount = 9;

/// Why and how a worker failed, for messages and for the exit code.
struct Failure {
  std::string who;  // "rank 2 on host a", in words.
  std::string how;  // What the exit code does not say: "was frozen". Empty: it just exited.
  Instant at;
  std::optional<int> code;
  int signal = 0;
};

struct Worker {
  Incarnation id;
  SlotId slot;
  Stage stage = Stage::kPlanned;
  bool first_attempt = true;  // No start on this slot has failed before.
  std::vector<std::string> addresses;
  Placement provisional;

  bool draining = false;       // Its slot has been withdrawn.
  bool drain_ordered = false;  // It was told, in this world.
  bool terminated = false;     // SIGTERM has been sent.
  bool released = false;

  // As a member.
  Generation since;  // The first world it was in; 0: none yet.
  uint32_t rank = 0;
  bool formed = false;
  bool left = false;
  bool done = false;
  bool bye = false;
  bool returned = false;  // Was done and entered elastic::run again.

  // State: `held` is what it said; it may hold a newer one. `held_in` is the newest generation of
  // which it may hold a commit, 0 if it holds nothing. `behind`: a world has gone on without it.
  std::optional<CommitId> held;
  Generation held_in;
  bool behind = false;

  std::optional<Failure> failure;

  bool IsLiving() const { return stage != Stage::kLost; }
  bool IsArriving() const {
    return stage == Stage::kPlanned || stage == Stage::kSpawned || stage == Stage::kJoined;
  }
  bool IsOutsider() const { return IsArriving() || stage == Stage::kWarm; }
  bool IsMember() const { return stage == Stage::kMember; }
  bool IsOpen() const { return IsMember() && !left && !done; }
  bool IsHolder() const { return (IsMember() || stage == Stage::kDrained) && held_in.value > 0; }
};

enum class AgentState : uint8_t { kNone, kStarting, kAttached, kSuspected };

struct Host {
  uint64_t number = 0;           // In order of discovery; the subject of its timers.
  uint32_t listed = 0;           // Slots in the newest poll.
  bool ever_listed = false;      // Else its agent has dialled in and waits to be listed.
  uint32_t allowed = 0;          // Slots not withdrawn: the larger of the last two polls.
  bool drain_requested = false;  // Sticky until a poll no longer lists the host.
  bool removal_due = false;      // Its members need not wait for replacements any longer.
  bool blamed = false;           // For the agent's present silence.
  AgentState agent = AgentState::kNone;
  std::string trouble;                        // Why it has no agent; empty: nothing is known.
  std::map<uint32_t, Incarnation> occupants;  // By slot, until the process is gone.
};

/// The newest world. Generation 0 without members is "no world yet".
struct World {
  Generation generation;
  std::vector<Incarnation> members;         // Rank order.
  bool synced = false;                      // A member's elastic function has run in it.
  bool notified = false;                    // Its members know that it is to change.
  bool closed = false;                      // Broken or about to be followed: counted once.
  bool revoked = false;                     // Its members were told so, once.
  std::map<Incarnation, PeerLost> unheard;  // About members that were told to drain.
};

/// Done members of an older world, where rank 0 waits for the others.
struct Epilogue {
  Incarnation rank0;
  std::set<Incarnation> present;
};

/// Sums over all workers, so that no event needs a walk over them.
struct Tally {
  std::array<int64_t, kStageCount> stages{};
  int64_t first_attempts = 0;  // Planned or spawned, nothing has failed on their slot.
  int64_t staying = 0;         // Members that are not draining.
  int64_t draining = 0;        // Members that are, and are not Done.
  int64_t ordered = 0;         // Of these, the ones that were told.
  int64_t unformed = 0;
  int64_t open = 0;  // Members neither Left nor Done.
  int64_t left = 0;
  int64_t at_work = 0;   // Members not Done.
  int64_t done = 0;      // Living members or former members that are Done.
  int64_t present = 0;   // Members that have not said Bye.
  int64_t returned = 0;  // Warm, after Done.
  int64_t holders = 0;

  int64_t operator[](Stage stage) const { return stages[static_cast<size_t>(stage)]; }
  void Add(const Worker& worker, int sign);
  bool operator==(const Tally&) const = default;
};

/// Workers that were Done and are gone.
struct Departed {
  int64_t with_0 = 0;  // Exited with 0.
  int64_t lost = 0;    // Went down with their agent.
};

// ---------------------------------------------------------------- phases

/// What the end of a world means for the limits.
enum class Change : uint8_t { kLoss, kPlanned, kRefill, kUnchanged };
/// Whose fault a loss is: the worker's, and so its slot's; its host's; or it is a victim.
enum class Fault : uint8_t { kOwn, kHost, kNone };
/// How a lost worker's process is ended.
enum class Kill : uint8_t { kNone, kTerm, kForce };

/// The count for --reset-limit and --failure-limit.
struct Resets {
  uint32_t all = 0;
  uint32_t by_loss = 0;
  bool pending = false;       // The change that leads to the next world was counted.
  bool last_by_loss = false;  // The last world whose function ran ended by a loss.
  int64_t refill = 0;         // Slots that may be filled again without counting.
};

/// Before the first world.
struct Gathering {
  bool started = false;  // The -np slots have been there.
  bool late = false;     // The start timeout is over.
};
/// The newest world stands.
struct Running {
  bool window = false;  // A member was lost; 3 ms for others to follow.
};
/// The newest world is revoked because links broke; agents are asked who lives.
struct Asking {
  std::set<Incarnation> unanswered;
  std::map<Incarnation, std::set<Incarnation>> reporters;  // By suspect.
  bool window = false;
  bool overdue = false;  // The first, short limit is over.
  std::string evidence;
};
/// The newest world is revoked and there are too few for the next.
struct Holding {
  Instant since;
};

/// What a step has made necessary; done in this order before it ends.
struct Todo {
  bool judge_silent = false;  // Some silent agents may be given up by now.
  bool reconsider = false;    // The world may have to change.
  bool replan = false;        // Slots may get workers, agents may be started or stopped.

  bool Any() const { return judge_silent || reconsider || replan; }
};

struct Verdict {
  int code = 0;       // Used where there is no failure, or where it stands above the failure's.
  std::string cause;  // Likewise.
  std::optional<Failure> failure;
};
/// Every process is being ended.
struct Ending {
  Verdict verdict;
  Incarnation decider;  // Whose exit code is awaited; 0: nobody's.
  bool forced = false;
  size_t stopped = 0;  // Other workers that were ended.
};
struct Finished {};

using Phase = std::variant<Gathering, Running, Asking, Holding, Ending, Finished>;

}  // namespace muster::launcher
