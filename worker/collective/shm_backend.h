#pragma once

// ShmBackend: collectives among the workers of one host, through their shared segment. Links
// neither Gloo nor gRPC. See backend.h for the contract, slot_exchange.h for how data is handed
// over.
//
// Threads: as backend.h says; while an operation runs, this rank's bell is entered (Bell::Enter) by
// whoever drives it.

#include <memory>
#include <vector>

#include "worker/collective/backend.h"
#include "worker/shm/segment.h"

namespace muster::worker {

/// `ranks`: of the world, by member of the segment (the local rank). `self`: this rank's member.
/// Every group of every operation consists of such ranks.
std::unique_ptr<Backend> MakeShmBackend(std::shared_ptr<Segment> segment,
                                        std::vector<int> ranks,
                                        int self);

}  // namespace muster::worker
