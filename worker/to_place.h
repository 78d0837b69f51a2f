#pragma once

// The place that an order names. Pure; generation, slot and host are the caller's to fill in.

#include "muster/v1/types.pb.h"
#include "worker/runtime.h"

namespace muster::worker {

inline Place ToPlace(const v1::Placement& placement) {
  Place place;
  place.rank = static_cast<int>(placement.rank());
  place.size = static_cast<int>(placement.size());
  place.local_rank = static_cast<int>(placement.local_rank());
  place.local_size = static_cast<int>(placement.local_size());
  place.cross_rank = static_cast<int>(placement.cross_rank());
  place.cross_size = static_cast<int>(placement.cross_size());
  return place;
}

}  // namespace muster::worker
