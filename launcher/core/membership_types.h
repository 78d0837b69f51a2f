#pragma once

// The vocabulary of Membership: events that happened, effects to perform. Small value structs in
// variants, so that a missing handler does not compile. Words: docs/architecture.md; rules:
// docs/membership.md. Nothing here reads a clock, locks, or does I/O.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/clock.h"
#include "common/ids.h"

namespace muster::launcher {

// ---------------------------------------------------------------- options

struct CooldownRange {
  Duration low;
  Duration high;
};

struct MembershipOptions {
  bool elastic = false;               // A discovery script or --min-np was given (rule 1).
  uint32_t np_start = 1;              // -np: slots needed before the first start.
  uint32_t np_min = 1;                // --min-np.
  std::optional<uint32_t> np_max;     // --max-np; absent: no bound.
  uint32_t spares = 0;                // --spares: warm workers kept outside the world.
  Duration start_timeout = std::chrono::seconds(30);
  Duration elastic_timeout = std::chrono::seconds(600);
  Duration grace = std::chrono::seconds(30);         // --grace: TERM to KILL, order to TERM.
  Duration driver_grace = std::chrono::seconds(10);  // --driver-grace: the lease.
  std::optional<uint32_t> reset_limit;
  std::optional<uint32_t> failure_limit;
  std::optional<CooldownRange> cooldown;  // --blacklist-cooldown-range.
  bool blame_host = false;                // --blame host.
};

// ---------------------------------------------------------------- events (past tense)

struct HostSlots {
  HostId host;
  uint32_t slots = 0;  // 0: listed, unused.
  auto operator<=>(const HostSlots&) const = default;
};

/// One successful poll, in the order of the script, duplicates merged.
struct HostsDiscovered {
  std::vector<HostSlots> hosts;
};
/// A poll failed. Fatal (78) if no poll has succeeded before; else the last list stays.
struct DiscoveryFailed {
  std::string message;  // Names the script, its code and stderr.
};
struct AgentAttached {
  HostId host;
};
/// The stream came back within the grace; the agent's workers are as they were.
struct AgentReattached {
  HostId host;
};
/// No summary for 2 s.
struct AgentSuspected {
  HostId host;
};
/// The agent is gone for good: it died, or its lease is over.
struct AgentLost {
  HostId host;
  std::string evidence;
};
struct AgentStartFailed {
  HostId host;
  std::string message;
  bool unreachable = false;  // Could not be reached: retried with back-off, without blame.
};
struct WorkerStarted {
  Incarnation worker;
  int64_t pid = 0;
};
struct SpawnFailed {
  Incarnation worker;
  std::string message;
};
/// It called init().
struct WorkerJoined {
  Incarnation worker;
  std::vector<std::string> addresses;  // Literals at which it listens.
};
/// A newcomer reached the first sync of elastic::run.
struct WorkerWarm {
  Incarnation worker;
};
struct WorkerFormed {
  Incarnation worker;
  Generation generation;
  std::optional<CommitId> held;
};
/// It left the generation at the agreed commit and waits for the next world.
struct WorkerLeft {
  Incarnation worker;
  Generation generation;
  std::optional<CommitId> held;
};
struct WorkerSynced {
  Incarnation worker;
  Generation generation;
  CommitId commit;
};
struct WorkerDone {
  Incarnation worker;
  Generation generation;
};
/// It entered elastic::run again: takes Done back.
struct WorkerRunning {
  Incarnation worker;
  Generation generation;
};
/// It called shutdown().
struct WorkerBye {
  Incarnation worker;
};
enum class LossKind : uint8_t { kOwnerDied, kFrozen, kSilent, kStalled };
struct WorkerLost {
  Incarnation worker;
  LossKind kind = LossKind::kOwnerDied;
  std::string evidence;
};
/// Process and process group are gone; the slot may be used again.
struct WorkerExited {
  Incarnation worker;
  int code = 0;    // Exit code, or 128 + signal.
  int signal = 0;  // 0: it exited by itself.
};
/// A link between members broke. Proves that the generation is broken, not that anyone is dead.
struct PeerLost {
  Incarnation reporter;
  Generation generation;
  std::vector<uint32_t> suspect_ranks;
  bool stalled = false;  // Past the stall shutdown time: the suspects are lost.
  std::string evidence;
};
struct SuspectAnswered {
  Incarnation worker;
  Generation generation;
  bool alive = false;
};
/// SIGTERM reached the agent of this host.
struct DrainRequested {
  HostId host;
};
/// SIGINT, SIGTERM or SIGHUP reached the driver. A second one kills at once.
struct StopRequested {
  int signal = 0;
};

enum class TimerKind : uint8_t {
  kStart,         // --start-timeout since the first spawn.
  kElastic,       // --elastic-timeout since the start of the hold (or of the wait for slots).
  kLossWindow,    // 3 ms: losses are taken together.
  kSettle,        // 500 ms: arrivals are taken together.
  kFormed,        // 5 s: a member that has not Formed is lost. Subject: generation.
  kSuspect,       // 50 ms: suspects' agents have not answered. Subject: generation.
  kBackoff,       // A slot or host may be used again. Subject: chosen by the core.
  kGrace,         // TERM, then KILL. Subject: incarnation.
  kFinish,        // The job's last grace is over.
  kRemoval,       // Members stayed for lack of replacements; the grace is over. Subject: host.
};
/// (kind, subject) names a timer; arming it again replaces it.
struct TimerKey {
  TimerKind kind = TimerKind::kStart;
  uint64_t subject = 0;
  auto operator<=>(const TimerKey&) const = default;
};
struct TimerFired {
  TimerKey timer;
};

using Event = std::variant<HostsDiscovered,
                           DiscoveryFailed,
                           AgentAttached,
                           AgentReattached,
                           AgentSuspected,
                           AgentLost,
                           AgentStartFailed,
                           WorkerStarted,
                           SpawnFailed,
                           WorkerJoined,
                           WorkerWarm,
                           WorkerFormed,
                           WorkerLeft,
                           WorkerSynced,
                           WorkerDone,
                           WorkerRunning,
                           WorkerBye,
                           WorkerLost,
                           WorkerExited,
                           PeerLost,
                           SuspectAnswered,
                           DrainRequested,
                           StopRequested,
                           TimerFired>;

// ---------------------------------------------------------------- effects (imperative)

/// Where a worker stands in a world; for a newcomer: where it will most likely stand.
struct Placement {
  uint32_t rank = 0;
  uint32_t size = 1;
  uint32_t local_rank = 0;
  uint32_t local_size = 1;
  uint32_t cross_rank = 0;
  uint32_t cross_size = 1;
  auto operator<=>(const Placement&) const = default;
};

struct Member {
  Incarnation worker;
  SlotId slot;
  std::vector<std::string> addresses;
  bool operator==(const Member&) const = default;
};

struct StartAgent {
  HostId host;
};
struct StopAgent {
  HostId host;
};
struct SpawnWorker {
  Incarnation worker;
  SlotId slot;
  Placement provisional;  // local_rank is the slot's index.
};
/// SIGTERM to the worker's group, or (force) SIGKILL to all that is left of it.
struct KillWorker {
  Incarnation worker;
  bool force = false;
};
/// Ask the agents of these workers whether they live.
struct AskAgent {
  Generation generation;
  std::vector<Incarnation> suspects;
};
/// Drop all that this incarnation says from now on; it is told to end itself.
struct Refuse {
  Incarnation worker;
  std::string reason;
};
/// Leave at the agreed commit.
struct Drain {
  std::vector<Incarnation> workers;
};
/// The next world, and the revocation of all older ones.
struct FormWorld {
  Generation generation;
  std::vector<Member> members;  // Rank order.
  bool counts_as_reset = false;
};
struct Revoke {
  Generation generation;
  std::vector<Incarnation> members;
};
/// Tell (or, pending == false, untell) the members that the world will change.
struct NotifyPending {
  Generation generation;
  std::vector<Incarnation> members;
  bool pending = true;
};
/// The worker may exit: a drained one, a newcomer that came too late, rank 0 in shutdown().
struct Release {
  std::vector<Incarnation> workers;
};
/// init() returns to a newcomer with provisional values.
struct Admit {
  Incarnation worker;
  Placement provisional;
};
struct ArmTimer {
  TimerKey timer;
  Duration delay;
};
struct CancelTimer {
  TimerKey timer;
};
/// Everything has ended; the driver exits with this code. `cause` is the last line on stderr,
/// without the prefix "muster: ".
struct FinishJob {
  int code = 0;
  std::string cause;
};
/// A sentence for the user (warning) that goes with no other effect.
struct Warn {
  std::string message;
};

using Effect = std::variant<StartAgent,
                            StopAgent,
                            SpawnWorker,
                            KillWorker,
                            AskAgent,
                            Refuse,
                            Drain,
                            FormWorld,
                            Revoke,
                            NotifyPending,
                            Release,
                            Admit,
                            ArmTimer,
                            CancelTimer,
                            FinishJob,
                            Warn>;

/// What one event led to. Effects are performed in this order.
struct Transition {
  std::vector<Effect> effects;
  std::string reason;  // In words; empty: nothing changed. Logged by the driver.
};

}  // namespace muster::launcher
