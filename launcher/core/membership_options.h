#pragma once

// What the command line decides for Membership, and the exit codes that its verdicts use
// (docs/membership.md, rule 12). Values; nothing here parses flags.

#include <chrono>
#include <cstdint>
#include <optional>

#include "common/clock.h"

namespace muster::launcher {

struct CooldownRange {
  Duration low;
  Duration high;
};

struct MembershipOptions {
  bool elastic = false;            // A discovery script or --min-np was given (rule 1).
  uint32_t np_start = 1;           // -np: slots needed before the first start.
  uint32_t np_min = 1;             // --min-np.
  std::optional<uint32_t> np_max;  // --max-np; absent: no bound.
  uint32_t spares = 0;             // --spares: warm workers kept outside the world.
  Duration start_timeout = std::chrono::seconds(30);
  Duration elastic_timeout = std::chrono::seconds(600);
  Duration grace = std::chrono::seconds(30);         // --grace: TERM to KILL, order to TERM.
  Duration driver_grace = std::chrono::seconds(10);  // --driver-grace: the lease.
  std::optional<uint32_t> reset_limit;
  std::optional<uint32_t> failure_limit;
  std::optional<CooldownRange> cooldown;  // --blacklist-cooldown-range.
  bool blame_host = false;                // --blame host.
};

inline constexpr int kExitUsage = 2;
inline constexpr int kExitFailure = 70;  // A failure that has no code of its own.
inline constexpr int kExitElasticTimeout = 75;
inline constexpr int kExitLimit = 76;        // --reset-limit or --failure-limit.
inline constexpr int kExitSetAside = 77;     // All slots are set aside for good.
inline constexpr int kExitDiscovery = 78;    // The first discovery failed.
inline constexpr int kExitStateLost = 79;    // No holder is left, and no failure to name.
inline constexpr int kExitNotStarted = 127;  // The command could not be executed.
inline constexpr int kExitSignalBase = 128;  // 128 + signal.

}  // namespace muster::launcher
