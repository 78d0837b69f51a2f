#pragma once

// From the log's words to a Reduction, and from that to those of kernels/reduce.h. Only names
// change.
//
// Thread-safe: no state.

#include "kernels/reduce.h"
#include "worker/collective/backend.h"
#include "worker/core/log_types.h"

namespace muster::worker {

/// `members`: of the process set.
inline Reduction ReductionOf(const Signature& signature, size_t members) {
  return {signature.dtype,
          signature.op,
          signature.prescale,
          signature.postscale,
          signature.op == Op::kAverage ? static_cast<int>(members) : 1};
}

inline kernels::ReducePlan PlanOf(const Reduction& what) {
  return {static_cast<kernels::Element>(what.dtype),
          static_cast<kernels::ReduceOp>(what.op),
          what.prescale,
          what.postscale,
          what.divisor};
}

}  // namespace muster::worker
