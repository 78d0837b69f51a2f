#pragma once

// Events: what has happened, in the past tense, as small value structs in a variant, so that a
// missing handler does not compile. Nothing here reads a clock, locks, or does I/O.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/ids.h"

namespace muster::launcher {

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
/// The agent's session goes on: it is heard again, or its stream came back. Its workers are as they
/// were. Never after AgentLost.
struct AgentReattached {
  HostId host;
};
/// No summary for 2 s. All that fell silent together come in one event: whether the workers of one
/// can be given up depends on who can still be reached, so none is judged while another one's
/// silence is still news.
struct AgentSuspected {
  std::vector<HostId> hosts;
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
/// It listens elsewhere than when it joined: at more addresses, for a host across a network came.
struct WorkerListening {
  Incarnation worker;
  std::vector<std::string> addresses;  // All of them.
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
  kStart,       // --start-timeout since the first spawn (static: since the beginning).
  kElastic,     // --elastic-timeout since the start of the hold (or of the wait for slots).
  kLossWindow,  // 3 ms: losses are taken together.
  kSettle,      // 500 ms: arrivals are taken together.
  kFormed,      // 5 s: a member that has not Formed is lost. Subject: generation.
  kSuspect,     // 50 ms: suspects' agents have not answered. Subject: generation.
  kBackoff,     // A slot or host may be used again. Subject: chosen by the core.
  kGrace,       // TERM, then KILL. Subject: incarnation.
  kFinish,      // The job's last grace is over.
  kRemoval,     // Members stayed for lack of replacements; the grace is over. Subject: host.
  kSilence,     // 2 s: one silent agent is back, and the others might be.
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
                           WorkerListening,
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

}  // namespace muster::launcher
