#pragma once

// All kernels of one level, dispatched by type and operation, and their table. Included once by
// each of the files level_*.cc, which are compiled with the flags of their level after they
// defined MUSTER_LEVEL_NAMESPACE, MUSTER_LEVEL_TABLE and MUSTER_VECTOR_BYTES. Not for anyone else:
// levels.h says why, and what may not be used here.
//
// Pure functions.

#include "kernels/level_adasum.h"
#include "kernels/level_fold.h"
#include "kernels/level_integers.h"
#include "kernels/levels.h"

namespace muster::kernels::MUSTER_LEVEL_NAMESPACE {
namespace {

const uint8_t* Bytes(const void* data) {
  return static_cast<const uint8_t*>(data);
}
uint8_t* Bytes(void* data) {
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

void Move(const Call& call, size_t stride) {
  if (call.inputs[0] == nullptr) {
    __builtin_memset(call.out, 0, call.count * stride);
  } else if (call.inputs[0] != call.out) {
    __builtin_memcpy(call.out, call.inputs[0], call.count * stride);
  }
}

template <class Stored, class Op>
void FoldUnscaled(const Call& call) {
  FoldMany<Stored, Op, false>(call.inputs, call.input_count, call.out, call.count, {1, 1});
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
    return FoldMany<Stored, Sum, true>(call.inputs,
                                       call.input_count,
                                       call.out,
                                       call.count,
                                       {static_cast<Lane>(pre), static_cast<Lane>(post)});
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
void ReduceBools(const Call& call, double factor) {
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

bool IsFloat(Element type) {
  return type >= Element::kF16 && type <= Element::kF64;
}

double FloatPostscale(const ReducePlan& plan) {
  return plan.op == ReduceOp::kAverage ? plan.postscale / plan.divisor : plan.postscale;
}

// ---------------------------------------------------------------- the table

void Combine(const ReducePlan& plan, void* out, const void* a, const void* b, size_t count) {
  const uint8_t* inputs[] = {Bytes(a), Bytes(b)};
  const Call call{plan.op, inputs, 2, Bytes(out), count};
  if (plan.type == Element::kBool) {
    return ReduceBools(call, 1);
  }
  if (IsFloat(plan.type)) {
    return plan.type == Element::kF64 ? ReduceFloats<Plain<double>>(call, 1, 1)
                                      : ReduceFloats<Plain<float>>(call, 1, 1);
  }
  VisitInteger(plan.type, [&](auto stored, auto twin, auto sum) {
    if (plan.op == ReduceOp::kAverage) {
      AddAverages(call.out, inputs[0], inputs[1], count, sum);
    } else {
      ReduceIntegers<decltype(stored), decltype(twin)>(call);
    }
  });
}

void Widen(const ReducePlan& plan, const void* in, void* accumulators, size_t count) {
  const uint8_t* from = Bytes(in);
  uint8_t* to = Bytes(accumulators);
  if (plan.type == Element::kBool) {
    return ReduceBools({ReduceOp::kSum, &from, 1, to, count}, plan.prescale);
  }
  if (IsFloat(plan.type)) {
    return VisitFloat(plan.type, [&](auto stored) {
      using Stored = decltype(stored);
      using Lane = typename Stored::Lane;
      const Factors<Lane> factors{static_cast<Lane>(plan.prescale), 1};
      if (plan.prescale == 1) {
        RunFold<Stored, Sum, Pass::kStart, 1, false>(&from, to, count, factors);
      } else {
        RunFold<Stored, Sum, Pass::kStart, 1, true>(&from, to, count, factors);
      }
    });
  }
  VisitInteger(plan.type, [&](auto stored, auto /*twin*/, auto sum) {
    using Stored = decltype(stored);
    if (plan.op == ReduceOp::kAverage) {
      Integers<Stored, decltype(sum)>::Widen(from, to, count, plan.prescale);
    } else {
      Integers<Stored, Stored>::Widen(from, to, count, plan.prescale);
    }
  });
}

void Narrow(const ReducePlan& plan, const void* accumulators, void* out, size_t count) {
  const uint8_t* from = Bytes(accumulators);
  uint8_t* to = Bytes(out);
  if (plan.type == Element::kBool) {
    return ReduceBools({ReduceOp::kSum, &from, 1, to, count}, plan.postscale);
  }
  if (IsFloat(plan.type)) {
    return VisitFloat(plan.type, [&](auto stored) {
      using Stored = decltype(stored);
      using Lane = typename Stored::Lane;
      const double postscale = FloatPostscale(plan);
      const Factors<Lane> factors{1, static_cast<Lane>(postscale)};
      if (postscale == 1) {
        RunFold<Stored, Sum, Pass::kFinish, 1, false>(&from, to, count, factors);
      } else {
        RunFold<Stored, Sum, Pass::kFinish, 1, true>(&from, to, count, factors);
      }
    });
  }
  VisitInteger(plan.type, [&](auto stored, auto /*twin*/, auto sum) {
    using Stored = decltype(stored);
    if (plan.op == ReduceOp::kAverage) {
      Integers<Stored, decltype(sum)>::Narrow(plan, from, to, count);
    } else {
      Integers<Stored, Stored>::Narrow(plan, from, to, count);
    }
  });
}

/// What is not reduced in one pass.
void ReduceInSteps(const ReducePlan& plan, const Call& call) {
  alignas(64) uint8_t total[kPiece * sizeof(Int128)];
  alignas(64) uint8_t widened[kPiece * sizeof(Int128)];
  const size_t stride = SizeOf(plan.type);
  for (size_t at = 0; at < call.count; at += kPiece) {
    const size_t size = call.count - at < kPiece ? call.count - at : kPiece;
    for (size_t k = 0; k < call.input_count; ++k) {
      const uint8_t* input = call.inputs[k];
      MUSTER_LEVEL_NAMESPACE::Widen(
          plan, input == nullptr ? kZeros : input + at * stride, k == 0 ? total : widened, size);
      if (k > 0) {
        MUSTER_LEVEL_NAMESPACE::Combine(plan, total, total, widened, size);
      }
    }
    MUSTER_LEVEL_NAMESPACE::Narrow(plan, total, call.out + at * stride, size);
  }
}

void ReduceMany(const ReducePlan& plan,
                const void* const* inputs,
                size_t input_count,
                void* out,
                size_t count) {
  const Call call{
      plan.op, reinterpret_cast<const uint8_t* const*>(inputs), input_count, Bytes(out), count};
  if (plan.type == Element::kBool) {
    return ReduceBools(call, plan.prescale == 0 ? 0 : plan.postscale);
  }
  if (IsFloat(plan.type)) {
    return VisitFloat(plan.type, [&](auto stored) {
      using Stored = decltype(stored);
      const double postscale = FloatPostscale(plan);
      if (IsOnePass<Stored>(plan.op, plan.prescale != 1 || postscale != 1)) {
        ReduceFloats<Stored>(call, plan.prescale, postscale);
      } else {
        ReduceInSteps(plan, call);
      }
    });
  }
  if (plan.op == ReduceOp::kAverage || plan.prescale != 1 || plan.postscale != 1) {
    return ReduceInSteps(plan, call);
  }
  VisitInteger(plan.type, [&](auto stored, auto twin, auto /*sum*/) {
    ReduceIntegers<decltype(stored), decltype(twin)>(call);
  });
}

void AdasumCombine(Element type, void* out, const void* a, const void* b, size_t count) {
  VisitFloat(type, [&](auto stored) {
    AdasumCombineAs<decltype(stored)>(Bytes(out), Bytes(a), Bytes(b), count);
  });
}

void Scale(const void* in, void* out, Element type, size_t count, double factor) {
  const uint8_t* from = Bytes(in);
  uint8_t* to = Bytes(out);
  if (type == Element::kBool) {
    return ReduceBools({ReduceOp::kSum, &from, 1, to, count}, factor);
  }
  if (IsFloat(type)) {
    return VisitFloat(type, [&](auto stored) {
      using Lane = typename decltype(stored)::Lane;
      const Factors<Lane> factors{static_cast<Lane>(factor), 1};
      RunWhole<decltype(stored), Sum, true>(&from, 1, to, count, factors);
    });
  }
  VisitInteger(type, [&](auto stored, auto /*twin*/, auto /*sum*/) {
    ScaleIntegers<decltype(stored)>(from, to, count, factor);
  });
}

}  // namespace
}  // namespace muster::kernels::MUSTER_LEVEL_NAMESPACE

namespace muster::kernels {

const LevelKernels MUSTER_LEVEL_TABLE = {
    MUSTER_LEVEL_NAMESPACE::ReduceMany,
    MUSTER_LEVEL_NAMESPACE::Widen,
    MUSTER_LEVEL_NAMESPACE::Combine,
    MUSTER_LEVEL_NAMESPACE::Narrow,
    MUSTER_LEVEL_NAMESPACE::AdasumCombine,
    MUSTER_LEVEL_NAMESPACE::Scale,
};

}  // namespace muster::kernels
