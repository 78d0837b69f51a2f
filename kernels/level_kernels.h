#pragma once

// All kernels of one level, and their table. Included once by
// each of the files level_*.cc, which are compiled with the flags of their level after they
// defined MUSTER_LEVEL_NAMESPACE and MUSTER_VECTOR_BYTES. Not for anyone else:
// levels.h says why, and what may not be used here.
//
// Pure functions.

#include "kernels/level_adasum.h"
#include "kernels/level_dispatch.h"
#include "kernels/level_integers.h"
#include "kernels/levels.h"

namespace muster::kernels::MUSTER_LEVEL_NAMESPACE {
namespace {

inline void Combine(const ReducePlan& plan, void* out, const void* a, const void* b, size_t count) {
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

inline void Widen(const ReducePlan& plan, const void* in, void* accumulators, size_t count) {
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
        RunFold<Stored, Sum, Pass::kStart, 1, Scaling::kNone>(&from, to, count, factors);
      } else {
        RunFold<Stored, Sum, Pass::kStart, 1, Scaling::kAll>(&from, to, count, factors);
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

inline void Narrow(const ReducePlan& plan, const void* accumulators, void* out, size_t count) {
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
        RunFold<Stored, Sum, Pass::kFinish, 1, Scaling::kNone>(&from, to, count, factors);
      } else {
        RunFold<Stored, Sum, Pass::kFinish, 1, Scaling::kAll>(&from, to, count, factors);
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
inline void ReduceInSteps(const ReducePlan& plan, const Call& call) {
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

inline void ReduceMany(const ReducePlan& plan,
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

inline void AdasumCombine(Element type, void* out, const void* a, const void* b, size_t count) {
  VisitFloat(type, [&](auto stored) {
    AdasumCombineAs<decltype(stored)>(Bytes(out), Bytes(a), Bytes(b), count);
  });
}

inline void Scale(const void* in, void* out, Element type, size_t count, double factor) {
  const uint8_t* from = Bytes(in);
  uint8_t* to = Bytes(out);
  if (type == Element::kBool) {
    return ReduceBools({ReduceOp::kSum, &from, 1, to, count}, factor);
  }
  if (IsFloat(type)) {
    return VisitFloat(type, [&](auto stored) {
      using Lane = typename decltype(stored)::Lane;
      const Factors<Lane> factors{static_cast<Lane>(factor), 1};
      RunWhole<decltype(stored), Sum, Scaling::kAll>(&from, 1, to, count, factors);
    });
  }
  VisitInteger(type, [&](auto stored, auto /*twin*/, auto /*sum*/) {
    ScaleIntegers<decltype(stored)>(from, to, count, factor);
  });
}

inline constexpr LevelKernels kTable = {
    MUSTER_LEVEL_NAMESPACE::ReduceMany,
    MUSTER_LEVEL_NAMESPACE::Widen,
    MUSTER_LEVEL_NAMESPACE::Combine,
    MUSTER_LEVEL_NAMESPACE::Narrow,
    MUSTER_LEVEL_NAMESPACE::AdasumCombine,
    MUSTER_LEVEL_NAMESPACE::Scale,
};

}  // namespace
}  // namespace muster::kernels::MUSTER_LEVEL_NAMESPACE
