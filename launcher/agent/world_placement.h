#pragma once

// Where the members of one host stand in a world, from its layout. Pure.

#include <cstdint>
#include <vector>

#include "common/status.h"
#include "muster/v1/types.pb.h"

namespace muster::launcher {

inline constexpr uint32_t kWorldSizeMax = 1 << 20;

/// Placements of the members of host `host_index`, in rank order. Ranks are contiguous per host;
/// cross_rank is the host's index among those that have this local rank. kInvalid if the layout
/// has no such host, an empty host, or more workers than kWorldSizeMax.
Result<std::vector<v1::Placement>> PlacementsOfHost(const v1::Layout& layout, uint32_t host_index);

}  // namespace muster::launcher
