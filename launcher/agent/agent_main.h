#pragma once

// Entries of `muster agent`. The calling process must have no other thread yet, and loses its
// descriptors beyond the standard ones: it becomes the reaper and forks the agent proper. Both
// block until everything has ended and give the exit code.

#include "launcher/cli/join_options.h"

namespace muster::launcher {

/// Started by a driver, which hands the rest over on standard input.
int RunAgent();

/// Started by somebody else: dials in at a driver and takes part until that ends it (0). 2: bad
/// options or secret; kExitNoDriver: no driver took it in time.
int RunJoinedAgent(const JoinOptions& options);

}  // namespace muster::launcher
