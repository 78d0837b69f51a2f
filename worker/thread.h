#pragma once

// Starts the runtime's threads: named, and with all signals blocked, so that the user's handlers
// run in the user's threads.

#include <functional>
#include <thread>

namespace muster::worker {

/// `name`: at most 15 characters.
std::jthread StartThread(const char* name, std::function<void()> body);

}  // namespace muster::worker
