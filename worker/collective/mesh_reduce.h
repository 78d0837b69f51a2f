#pragma once

// Reductions over a PeerMesh: each element is sent to the one member that reduces it, as it is
// stored, and reduced there in the order of the group in one pass. That is one step where a ring
// takes one for each member, half of the bytes for 16-bit floats, and the same bits on all members.
// What is large goes in segments, of which some are on their way while one is computed. Each member
// talks to each other at once, so this is for groups of moderate size.
//
// Threads: as PeerMesh. Errors leave as MeshError.

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "kernels/reduce.h"
#include "worker/collective/backend.h"
#include "worker/collective/group_links.h"

namespace muster::worker {

/// Memory that is kept from one operation to the next. What it holds is lost when it grows.
class ScratchBuffer {
 public:
  char* Get(size_t bytes) {
    if (bytes > size_) {
      bytes_.reset();
      bytes_ = std::make_unique_for_overwrite<char[]>(bytes);
      size_ = bytes;
    }
    return bytes_.get();
  }

 private:
  std::unique_ptr<char[]> bytes_;
  size_t size_ = 0;
};

/// Bounded by the size of a segment, whatever is reduced.
struct ReduceScratch {
  static constexpr size_t kLanes = 3;
  std::array<ScratchBuffer, kLanes> received;
  std::array<ScratchBuffer, kLanes> packed;
};

/// What becomes of the inputs of all members.
class Combiner {
 public:
  enum class Form {
    kStored,          // Elements in, elements out.
    kAccumulators,    // Accumulators in, accumulators out.
    kToAccumulators,  // Elements in, accumulators out.
  };

  Combiner(const kernels::ReducePlan& plan, Form form) : plan_(plan), form_(form) {}

  size_t in_size() const;
  size_t out_size() const;
  /// `inputs` by member. Those of others may be overwritten; `out` may equal the own one.
  void Run(std::span<void* const> inputs, int self, void* out, size_t count) const;

 private:
  void CombineAccumulators(std::span<void* const> inputs, int self, void* out, size_t count) const;
  void WidenAll(std::span<void* const> inputs, void* out, size_t count) const;

  kernels::ReducePlan plan_;
  Form form_;
};

/// Every member gets all results. Piece::out has the size of elements in.
void MeshAllreduce(const GroupLinks& links,
                   std::span<const Piece> pieces,
                   const Combiner& combiner,
                   ReduceScratch& scratch);

/// As Backend::ReduceScatter.
void MeshReduceScatter(const GroupLinks& links,
                       const void* in,
                       void* out,
                       std::span<const size_t> counts,
                       const Combiner& combiner,
                       ReduceScratch& scratch);

/// As Backend::ReduceToRoot.
void MeshReduceToRoot(const GroupLinks& links,
                      std::span<const Piece> pieces,
                      const Combiner& combiner,
                      void* out,
                      int root,
                      ReduceScratch& scratch);

}  // namespace muster::worker
