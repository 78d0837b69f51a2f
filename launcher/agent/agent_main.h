#pragma once

// Entry of `muster agent`. The calling process must have no other thread yet: it becomes the
// reaper and forks the agent proper. Blocks until everything has ended; gives the exit code.

namespace muster::launcher {

int RunAgent();

}  // namespace muster::launcher
