#pragma once

// EndThisProcess: how a worker ends itself when it must not go on: refused, out of its agent's
// reach, or unable to let go of the user's memory. No handler runs and no thread is waited for.
//
// Any thread; it is the engine's, which must not wait for a terminal that takes nothing, nor for a
// lock of stdio that a thread of the user holds while it waits for one.

#include <string>

namespace muster::worker {

[[noreturn]] void EndThisProcess(int code, const std::string& why);

}  // namespace muster::worker
