#pragma once

// Backend: moves raw buffers between the members of one generation. It knows no names, handles or
// agreement: the engine calls each member's backend with the same operations in the same order.
// Every member gets the same bits. After Abort, or any error, a backend is never used again.
//
// Threads: operations one at a time, from whichever thread drives the session; Abort and suspects
// as said below.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/status.h"
#include "muster/muster.h"

namespace muster::worker {

/// Who takes part in an operation: a process set, in growing rank order.
struct Group {
  std::vector<int> ranks;  // Of the world.
  int self = 0;            // Index of this rank in `ranks`.

  int size() const { return static_cast<int>(ranks.size()); }
};

/// One operation, as all its members know it.
struct OpContext {
  const Group& group;
  /// Position in the log of the generation: the same on all members, and growing. Operations of
  /// groups without this rank leave gaps.
  uint64_t number = 0;
  /// kTimeout after it.
  std::chrono::steady_clock::time_point deadline;
};

/// A part of a fused buffer. All members have the same counts in the same order.
struct Piece {
  const void* in = nullptr;  // Null: zeros (of a rank that has joined).
  void* out = nullptr;       // May equal `in`. Null: this rank does not want the result.
  size_t count = 0;          // Elements.
};

/// result = postscale * op(prescale * in of each member), as kernels/reduce.h computes it.
struct Reduction {
  DType dtype = DType::kF32;
  Op op = Op::kSum;  // kAverage divides by `divisor`. Never kAdasum.
  double prescale = 1;
  double postscale = 1;
  int divisor = 1;  // kAverage only: the size of the process set.
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual Status Allreduce(const OpContext& context,
                           std::span<const Piece> pieces,
                           const Reduction& what) = 0;
  /// The inner half of an allreduce in two levels: the member with index `root` gets the pieces
  /// reduced but not yet narrowed, one behind the other, in `accumulators` (kernels/reduce.h);
  /// postscale, divisor and Piece::out play no part. Of the others that memory is not used.
  virtual Status ReduceToRoot(const OpContext& context,
                              std::span<const Piece> pieces,
                              const Reduction& what,
                              void* accumulators,
                              int root) = 0;
  /// Reduces `sum(counts)` elements of `in`; the member with index i gets the `counts[i]` elements
  /// behind those of the members before it, in `out`. `in` is only read; no overlap.
  virtual Status ReduceScatter(const OpContext& context,
                               const void* in,
                               void* out,
                               std::span<const size_t> counts,
                               const Reduction& what) = 0;
  /// `byte_counts[i]` bytes come from member i, concatenated in order into `out`.
  virtual Status Allgatherv(const OpContext& context,
                            const void* in,
                            void* out,
                            std::span<const size_t> byte_counts) = 0;
  /// `root`: index in the group.
  virtual Status Broadcast(const OpContext& context, void* inout, size_t bytes, int root) = 0;
  /// `send_bytes[i]` bytes go to member i, one after another in `in`; `receive_bytes[i]` come from
  /// it, one after another in `out`. No overlap.
  virtual Status Alltoallv(const OpContext& context,
                           const void* in,
                           std::span<const size_t> send_bytes,
                           void* out,
                           std::span<const size_t> receive_bytes) = 0;
  /// No member returns before all have called it.
  virtual Status Barrier(const OpContext& context) = 0;

  /// Makes a running and every later operation fail with kAborted. From any thread, at any time;
  /// returns at once. When the operation has returned to its caller, nobody touches the memory
  /// that was passed to it any more.
  virtual void Abort() = 0;

  /// After an error other than kAborted, from the thread that got it: the ranks whose links failed
  /// or who kept others waiting.
  virtual std::vector<int> suspects() const { return {}; }
};

}  // namespace muster::worker
