#pragma once

// A Reduction in the words of kernels/reduce.h. Only names change.
//
// Thread-safe: no state.

#include "kernels/reduce.h"
#include "worker/collective/backend.h"

namespace muster::worker {

inline kernels::ReducePlan PlanOf(const Reduction& what) {
  return {static_cast<kernels::Element>(what.dtype),
          static_cast<kernels::ReduceOp>(what.op),
          what.prescale,
          what.postscale,
          what.divisor};
}

}  // namespace muster::worker
