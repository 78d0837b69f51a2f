#pragma once

// The loop of elastic::run, without its end: what elastic::run does when the worker is released is
// to exit the process, which a test in the same process cannot watch.
//
// In the user's thread.

#include <functional>

#include "muster/elastic.h"
#include "worker/runtime.h"

namespace muster::elastic {

enum class RunEnd : uint8_t {
  kFinished,  // `train` returned; the driver has been told.
  kReleased,  // The process has to exit, with code 0.
};

/// Exceptions of `train` other than WorkersLost and HostsUpdated pass through.
RunEnd RunLoop(worker::Runtime& runtime, State& state, const std::function<void(State&)>& train);

}  // namespace muster::elastic
