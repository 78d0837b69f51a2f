#pragma once

// One rank of each contestant that lives in this binary; Open MPI's has its own (mpi_main.cc).
// All throw std::exception if they cannot come up.

#include <memory>
#include <string>

#include "bench/rank_loop.h"

namespace muster::bench {

/// A worker of the job that `muster run` started.
std::unique_ptr<RankEngine> MakeMusterRank();

/// Raw Gloo over its own TCP transport on the loopback interface. The ranks meet in the folder
/// `store`. Algorithms of allreduce: ring, bcube, halving_doubling.
std::unique_ptr<RankEngine> MakeGlooRank(int rank, int size, const std::string& store);

/// The bare loop over shared memory: the floor. `segment` is a descriptor of SegmentBytes(size)
/// zero bytes that all ranks share.
std::unique_ptr<RankEngine> MakeShmRank(int rank, int size, int segment);
size_t SegmentBytes(int size);

}  // namespace muster::bench
