#pragma once

// The agent proper: the process that the reaper forks. Builds the parts, gives them the main thread
// as their loop, and watches the lifelines.

#include <chrono>
#include <string>

#include "common/clock.h"
#include "common/unique_fd.h"
#include "muster/v1/agents.pb.h"

namespace muster::launcher {

/// Exit code of an agent whose driver or reaper is gone: it has killed everything.
inline constexpr int kExitAbandoned = 1;

/// How long a sweep tries; what hangs in the kernel longer than this cannot be helped.
inline constexpr Duration kSweepDeadline = std::chrono::seconds(4);

/// Blocks until the agent ends; gives the exit code. SIGCHLD and SIGTERM are blocked by the
/// caller, and SIGHUP unless it is ignored. Standard input and `reaper` are the lifelines.
int RunAgentProper(const v1::AgentBootstrap& bootstrap,
                   const std::string& directory,
                   UniqueFd reaper);

}  // namespace muster::launcher
