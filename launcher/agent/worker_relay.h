#pragma once

// What a worker says, as its agent tells it to the driver. Pure.

#include <optional>

#include "common/ids.h"
#include "muster/v1/agents.pb.h"
#include "muster/v1/workers.pb.h"

namespace muster::launcher {

/// None for reports that the agent itself acts on (Join, Bye) or does not know.
std::optional<v1::AgentReport> RelayedReport(Incarnation worker, const v1::WorkerReport& report);

}  // namespace muster::launcher
