#pragma once

// Effects: what Membership wants done, in the imperative, as small value structs in a variant, so
// that a missing handler does not compile. They say what, never how: the driver performs them.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "common/clock.h"
#include "common/ids.h"
#include "launcher/core/membership_events.h"

namespace muster::launcher {

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

}  // namespace muster::launcher
