#pragma once

// Operations on worlds of threads, whatever the backend: each rank makes its own input, runs the
// operation and compares its own result with what it has to be.
//
// Threads: one per rank; a case is only read.

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/random.h"
#include "worker/collective/backend.h"

namespace muster::worker {

using Backends = std::vector<std::unique_ptr<Backend>>;

enum class Kind {
  kAllreduce,
  kReduceToRoot,
  kReduceScatter,
  kAllgatherv,
  kBroadcast,
  kAlltoallv,
  kBarrier
};
inline constexpr std::array kAllKinds = {Kind::kAllreduce,
                                         Kind::kReduceToRoot,
                                         Kind::kReduceScatter,
                                         Kind::kAllgatherv,
                                         Kind::kBroadcast,
                                         Kind::kAlltoallv,
                                         Kind::kBarrier};
const char* Name(Kind kind);

struct Case {
  Kind kind = Kind::kAllreduce;
  std::vector<int> ranks;
  Reduction what;
  /// Of the pieces; or by member of the group, where they differ by member.
  std::vector<size_t> counts;
  int root = 0;           // Index in the group.
  bool in_place = false;  // Allreduce only.
  int joined = -1;        // Index of the member that brings zeros. Allreduce only.
  int unwilling = -1;     // Index of the member that wants no result. Allreduce only.
  uint64_t seed = 1;
  /// False: zeros are moved and nothing is compared, where only the time and the status matter.
  bool is_checked = true;
};

struct Outcome {
  Status status;
  std::vector<char> result;
  std::string wrong;  // Empty: the result is right.
};

/// What the rank `self`, a member, gets.
Outcome RunCase(Backend& backend,
                int self,
                uint64_t number,
                std::chrono::steady_clock::time_point deadline,
                const Case& what);

/// Runs it on all members' threads; throws if anything is wrong, or if bits that should be the same
/// differ.
void RunEverywhere(Backends& world, uint64_t number, const Case& what);

/// All members run it again and again; after so many runs everybody is aborted. Throws if anybody
/// ends in another way, or not within 15 s.
void AbortAfter(Backends& world, const Case& what, uint64_t runs);

std::vector<int> WholeWorld(int size);
/// Everything is drawn: the group, the operation, the sizes, which are often 0.
Case DrawCase(Random& random, int world_size, size_t count_max);
/// An operation of the kind in which each member moves about `bytes`.
Case CaseOfBytes(Kind kind, std::vector<int> ranks, size_t bytes);
std::string Describe(const Case& what);

}  // namespace muster::worker
