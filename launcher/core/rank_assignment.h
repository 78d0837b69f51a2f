#pragma once

// Who gets which rank (docs/membership.md, rule 7): pure functions from workers and their slots to
// an order and to places. They choose nobody: who is in the world has been decided before.

#include <vector>

#include "common/ids.h"
#include "launcher/core/membership_types.h"

namespace muster::launcher {

/// A worker by what its rank depends on.
struct Candidate {
  Incarnation worker;
  SlotId slot;
  /// The first world it was in. It goes before the incarnation, because a late starter may be older
  /// as a process than the members and must not push a living rank 0 from its place.
  Generation since;
};

/// Rank order: hosts by the age of their oldest worker, workers of a host by age. Ranks are
/// contiguous per host, and rank 0 is the oldest worker.
std::vector<Candidate> InRankOrder(std::vector<Candidate> candidates);

/// The places of a world given in rank order, ranks contiguous per host. As in Horovod, cross_rank
/// is the index of the host among the hosts that have this local_rank, cross_size their number.
std::vector<Placement> PlacementsOf(const std::vector<SlotId>& slots);

}  // namespace muster::launcher
