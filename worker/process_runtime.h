#pragma once

// The one runtime of this process: who calls init() owns it. In a forked child there is none.
//
// Threads: any; init and shutdown from the user's thread.

#include "worker/runtime.h"

namespace muster::worker {

void InitProcessRuntime();
void ShutdownProcessRuntime();
bool ProcessRuntimeIsInitialized();

}  // namespace muster::worker
