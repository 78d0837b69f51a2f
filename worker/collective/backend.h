#pragma once

// Backend: moves raw buffers between the members of one generation. It knows no names, handles or
// agreement: the engine calls each member's backend with the same operations in the same order.
// Every rank gets the same bits. After Abort, or any error, a backend is never used again.
//
// Threads: operations on the executor thread, one at a time; Abort from any thread, any time.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/status.h"
#include "muster/muster.h"

namespace muster::worker {

struct Reduction {
  DType dtype = DType::kF32;
  size_t count = 0;  // Elements.
  Op op = Op::kSum;  // Never kAverage: the engine divides.
};

class Backend {
 public:
  using Timeout = std::chrono::milliseconds;

  virtual ~Backend() = default;

  /// `in` may equal `out`.
  virtual Status Allreduce(const void* in, void* out, const Reduction& what, Timeout timeout) = 0;
  /// `byte_counts[rank]` bytes come from each rank, concatenated in rank order into `out`.
  virtual Status Allgatherv(const void* in,
                            void* out,
                            std::span<const size_t> byte_counts,
                            Timeout timeout) = 0;
  virtual Status Broadcast(void* inout, size_t bytes, int root, Timeout timeout) = 0;

  /// Makes a running and every later operation fail with kAborted. Returns at once; no operation
  /// touches user memory after it has returned to its caller.
  virtual void Abort() = 0;

  /// After an error other than kAborted: the ranks whose links failed or who kept others waiting.
  virtual std::vector<int> suspects() const { return {}; }
};

}  // namespace muster::worker
