#pragma once

// From types and operations as values to the folds of one level. Included by level_kernels.h;
// levels.h says what may not be used here.
//
// Pure functions. Inputs and outputs may be equal, and need no alignment.

#include "kernels/level_fold.h"
#include "kernels/level_integers.h"
#include "kernels/reduce.h"

namespace muster::kernels::MUSTER_LEVEL_NAMESPACE {
namespace {

inline const uint8_t* Bytes(const void* data) {
  return static_cast<const uint8_t*>(data);
}
inline uint8_t* Bytes(void* data) {
  return static_cast<uint8_t*>(data);
}

/// Inputs, as stored or as accumulators, on the way to one output.
struct Call {
  ReduceOp op;
  const uint8_t* const* inputs;
  size_t input_count;
  uint8_t* out;
  size_t count;
};

inline void Move(const Call& call, size_t stride) {
  if (call.inputs[0] == nullptr) {
    __builtin_memset(call.out, 0, call.count * stride);
  } else if (call.inputs[0] != call.out) {
    __builtin_memcpy(call.out, call.inputs[0], call.count * stride);
  }
}

template <class Stored, class Op>
void FoldUnscaled(const Call& call) {
  FoldMany<Stored, Op, Scaling::kNone>(call.inputs, call.input_count, call.out, call.count, {1, 1});
}

/// The floats that are reduced in one pass: all sums, and the rest if nothing is to be converted
/// or scaled. More would be much code for what nobody waits for.
template <class Stored>
bool IsOnePass(ReduceOp op, bool scaled) {
  return op == ReduceOp::kSum || op == ReduceOp::kAverage || (Stored::kAccumulates && !scaled);
}

/// IsOnePass only.
template <class Stored>
void ReduceFloats(const Call& call, double pre, double post) {
  using Lane = typename Stored::Lane;
  const bool scaled = pre != 1 || post != 1;
  if (Stored::kAccumulates && call.input_count == 1 && !scaled) {
    return Move(call, Stored::kStride);
  }
  if (call.op == ReduceOp::kSum || call.op == ReduceOp::kAverage) {
    if (!scaled) {
      return FoldUnscaled<Stored, Sum>(call);
    }
    const Factors<Lane> factors{static_cast<Lane>(pre), static_cast<Lane>(post)};
    if constexpr (!Stored::kAccumulates) {
      // With nothing to convert, a multiplication hides behind the memory; here it shows.
      if (pre == 1) {
        return FoldMany<Stored, Sum, Scaling::kResult>(
            call.inputs, call.input_count, call.out, call.count, factors);
      }
    }
    return FoldMany<Stored, Sum, Scaling::kAll>(
        call.inputs, call.input_count, call.out, call.count, factors);
  }
  if constexpr (Stored::kAccumulates) {
    if (call.op == ReduceOp::kMin) {
      return FoldUnscaled<Stored, Min>(call);
    }
    if (call.op == ReduceOp::kMax) {
      return FoldUnscaled<Stored, Max>(call);
    }
    return FoldUnscaled<Stored, Product>(call);
  }
}

/// Accumulators of the stored type and no factors.
template <class Signedness, class Unsigned>
void ReduceIntegers(const Call& call) {
  if (call.input_count == 1) {
    return Move(call, sizeof(Unsigned));
  }
  switch (call.op) {
    case ReduceOp::kSum:  // Unsigned arithmetic wraps; signed may do anything.
      return FoldUnscaled<Plain<Unsigned>, Sum>(call);
    case ReduceOp::kMin:
      return FoldUnscaled<Plain<Signedness>, Min>(call);
    case ReduceOp::kMax:
      return FoldUnscaled<Plain<Signedness>, Max>(call);
    case ReduceOp::kProduct:
      return FoldUnscaled<Plain<Unsigned>, Product>(call);
    case ReduceOp::kAverage:
    case ReduceOp::kAdasum:
      __builtin_trap();
  }
}

/// Of 0 and 1, the larger is OR and the smaller is AND.
inline void ReduceBools(const Call& call, double factor) {
  if (factor == 0) {
    __builtin_memset(call.out, 0, call.count);
  } else if (call.op == ReduceOp::kSum || call.op == ReduceOp::kMax) {
    FoldUnscaled<Bool, Max>(call);
  } else {
    FoldUnscaled<Bool, Min>(call);
  }
}

/// Calls `visit` with a value of the format of a float.
template <class Visit>
MUSTER_INLINE void VisitFloat(Element type, Visit visit) {
  switch (type) {
    case Element::kF16:
      return visit(F16{});
    case Element::kBF16:
      return visit(Bf16{});
    case Element::kF32:
      return visit(Plain<float>{});
    case Element::kF64:
      return visit(Plain<double>{});
    default:
      __builtin_trap();
  }
}

/// Calls `visit` with zeros of an integer's type, of its unsigned twin, and of what its averages
/// are summed in.
template <class Visit>
MUSTER_INLINE void VisitInteger(Element type, Visit visit) {
  switch (type) {
    case Element::kU8:
      return visit(uint8_t{}, uint8_t{}, int64_t{});
    case Element::kI8:
      return visit(int8_t{}, uint8_t{}, int64_t{});
    case Element::kU16:
      return visit(uint16_t{}, uint16_t{}, int64_t{});
    case Element::kI16:
      return visit(int16_t{}, uint16_t{}, int64_t{});
    case Element::kI32:
      return visit(int32_t{}, uint32_t{}, int64_t{});
    case Element::kI64:
      return visit(int64_t{}, uint64_t{}, Int128{});
    default:
      __builtin_trap();
  }
}

inline bool IsFloat(Element type) {
  return type >= Element::kF16 && type <= Element::kF64;
}

inline double FloatPostscale(const ReducePlan& plan) {
  return plan.op == ReduceOp::kAverage ? plan.postscale / plan.divisor : plan.postscale;
}

}  // namespace
}  // namespace muster::kernels::MUSTER_LEVEL_NAMESPACE
