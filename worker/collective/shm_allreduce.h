#pragma once

// ShmAllreduce: one allreduce among the workers of one host. Chunk by chunk; what a rank can do now
// it does, in whichever chunk, and it waits only when there is nothing.
//
//  - One step, for small buffers: each rank gives all of its chunk and reduces all of everyone's.
//  - Two steps: each rank gives the others the slices that they reduce, reduces its own (straight
//    from the caller's memory) into the place in its slot that it did not need to give, and takes
//    the results from the others' slots.
//
// Bits: every element is reduced once, or the same way everywhere, in the group's order.
//
// Threads: one, for as long as Run takes.

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "kernels/reduce.h"
#include "worker/collective/piece_walk.h"
#include "worker/collective/slot_exchange.h"

namespace muster::worker {

class ShmAllreduce {
 public:
  /// `exchange` has begun the operation. `scratch` is the backend's, kSlotBytes.
  ShmAllreduce(SlotExchange& exchange,
               std::span<const Piece> pieces,
               const kernels::ReducePlan& plan,
               char* scratch);

  Status Run();

 private:
  struct Range {
    size_t begin;
    size_t end;
  };
  Range Chunk(uint64_t step) const;
  /// The part of the chunk that this member of the group reduces.
  Range Slice(uint64_t step, int index) const;

  Status RunInOneStep();
  Status RunInTwoSteps();
  void GiveAll(uint64_t step);
  void ReduceAll(uint64_t step);
  void GiveSlices(uint64_t step);
  void ReduceSlice(uint64_t step);
  void TakeSlices(uint64_t step);
  bool MayGive(uint64_t given, uint64_t taken);

  SlotExchange& exchange_;
  const kernels::ReducePlan plan_;
  const size_t element_bytes_;
  char* const scratch_;
  size_t total_ = 0;  // Elements.
  size_t chunk_ = 0;  // Elements of all chunks but the last.
  uint64_t steps_ = 0;
  bool small_pieces_ = false;  // Copied together rather than reduced one by one.
  PieceWalk give_;
  PieceWalk reduce_;
  PieceWalk take_;
  std::vector<const void*> inputs_;
};

}  // namespace muster::worker
