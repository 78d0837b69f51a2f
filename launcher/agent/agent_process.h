#pragma once

// The agent proper: the process that the reaper forks. Builds the parts, gives them the main thread
// as their loop, and watches the lifelines.

#include <chrono>
#include <optional>
#include <string>

#include "common/clock.h"
#include "common/unique_fd.h"
#include "launcher/agent/lease_page.h"
#include "muster/v1/agents.pb.h"

namespace muster::launcher {

/// Exit code of an agent whose driver or reaper is gone: it has killed everything.
inline constexpr int kExitAbandoned = 1;

/// How long a sweep tries; what hangs in the kernel longer than this cannot be helped.
inline constexpr Duration kSweepDeadline = std::chrono::seconds(4);

/// Exit code of an agent that dialled in where no driver answered in time.
inline constexpr int kExitNoDriver = 75;

/// What only an agent that dials in by itself knows.
struct DialIn {
  uint32_t slots = 0;
  Duration patience = std::chrono::seconds(300);  // How long to wait for a driver.
};

/// Blocks until the agent ends; gives the exit code. SIGCHLD and SIGTERM are blocked by the
/// caller, and SIGHUP unless it is ignored. `reaper` is a lifeline, and so is standard input on the
/// driver's machine; elsewhere the lease takes its place.
int RunAgentProper(const v1::AgentBootstrap& bootstrap,
                   const std::string& directory,
                   UniqueFd reaper,
                   LeasePage& lease,
                   const std::optional<DialIn>& dial_in = std::nullopt);

}  // namespace muster::launcher
