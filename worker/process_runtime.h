#pragma once

// The one runtime of this process: who calls init() owns it. In a forked child there is none.
//
// Threads: any; init and shutdown from the user's thread.

#include "worker/runtime.h"

namespace muster::worker {

/// `process_sets`: see muster.h.
void InitProcessRuntime(const std::vector<std::vector<int>>& process_sets);
void ShutdownProcessRuntime();
bool ProcessRuntimeIsInitialized();

}  // namespace muster::worker
