#pragma once

// The fields that every line of a worker's trace shares (docs/trace.md). Stateless.

#include <nlohmann/json.hpp>
#include <optional>

#include "common/ids.h"
#include "worker/runtime.h"

namespace muster::worker {

/// host, rank, size, local_rank, generation, the incarnation if a launcher gave one, and the commit
/// that is held, if any. Writers add what is special to their event.
nlohmann::json TraceFields(const Place& place, const std::optional<CommitId>& held);

}  // namespace muster::worker
