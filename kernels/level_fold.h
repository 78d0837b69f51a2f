#pragma once

// Folds of one level: several inputs combined element by element in one pass, with the factors of
// floats in the same pass. Included by level_kernels.h; levels.h says what may not be used here.
//
// Pure functions. Inputs and outputs may be equal, and need no alignment.

#include "kernels/level_formats.h"

namespace muster::kernels::MUSTER_LEVEL_NAMESPACE {
namespace {

/// Elements that several passes go over, so few that their accumulators and the same piece of some
/// inputs fit into the L1 cache together.
inline constexpr size_t kPiece = 512;
/// What a null input is read from.
alignas(64) inline constexpr uint8_t kZeros[kPiece * 8] = {};
/// Which factors a pass applies. One that is 1 may be applied too, and changes nothing.
enum class Scaling { kNone, kResult, kAll };

/// Multiplies inputs by `pre` and the result by `post`.
template <class Lane>
struct Factors {
  Lane pre;
  Lane post;
};

/// What a pass does beside the combination. kWhole: stored inputs to a stored result. Else the
/// first input or the result are accumulators, to which the factor does not apply (yet or again).
enum class Pass { kWhole, kStart, kMiddle, kFinish };

template <class Stored, class Op, Pass kPass, size_t kInputs, Scaling kScaling>
struct Fold {
  using Lane = typename Stored::Lane;
  using Value = typename Stored::Value;
  using Accumulator = typename Stored::Accumulator;
  static constexpr bool kContinues = kPass == Pass::kMiddle || kPass == Pass::kFinish;
  static constexpr bool kFinishes = kPass == Pass::kWhole || kPass == Pass::kFinish;
  static constexpr size_t kLanes = Stored::kLanes;
  static constexpr size_t kFirstStride = kContinues ? Accumulator::kStride : Stored::kStride;
  static constexpr size_t kOutStride = kFinishes ? Stored::kStride : Accumulator::kStride;
  static constexpr size_t kUnrolled = 2;

  static MUSTER_INLINE Value First(const uint8_t* from, Factors<Lane> factors) {
    if constexpr (kContinues) {
      return Accumulator::Load(from);
    } else if constexpr (kScaling == Scaling::kAll) {
      return Stored::Load(from) * factors.pre;
    } else {
      return Stored::Load(from);
    }
  }

  static MUSTER_INLINE Value Next(const uint8_t* from, Factors<Lane> factors) {
    if constexpr (kScaling == Scaling::kAll) {
      return Stored::Load(from) * factors.pre;
    } else {
      return Stored::Load(from);
    }
  }

  static MUSTER_INLINE void Step(const uint8_t* const* inputs,
                                 uint8_t* out,
                                 size_t at,
                                 Factors<Lane> factors) {
    Value result = First(inputs[0] + at * kFirstStride, factors);
    for (size_t k = 1; k < kInputs; ++k) {
      result = Op::Apply(result, Next(inputs[k] + at * Stored::kStride, factors));
    }
    if constexpr (kFinishes && kScaling != Scaling::kNone) {
      result = result * factors.post;
    }
    if constexpr (kFinishes) {
      Stored::Store(out + at * kOutStride, result);
    } else {
      Accumulator::Store(out + at * kOutStride, result);
    }
  }

  static MUSTER_OUTLINE void Run(const uint8_t* const* inputs,
                                 uint8_t* out,
                                 size_t count,
                                 Factors<Lane> factors) {
    // A local copy: stores through `out` cannot change it, as far as the compiler knows.
    const uint8_t* from[kInputs];
    for (size_t k = 0; k < kInputs; ++k) {
      from[k] = inputs[k];
    }
    size_t at = 0;
    for (; at + kUnrolled * kLanes <= count; at += kUnrolled * kLanes) {
      for (size_t step = 0; step < kUnrolled; ++step) {
        Step(from, out, at + step * kLanes, factors);
      }
    }
    for (; at + kLanes <= count; at += kLanes) {
      Step(from, out, at, factors);
    }
    if (at < count) {
      RunTail(from, out, at, count - at, factors);
    }
  }

  // The last elements go through vectors filled up with zeros, so that no other code decides about
  // their bits.
  static MUSTER_OUTLINE void RunTail(
      const uint8_t* const* inputs, uint8_t* out, size_t at, size_t count, Factors<Lane> factors) {
    alignas(64) uint8_t padded[kInputs + 1][kVectorBytes] = {};
    const uint8_t* from[kInputs];
    for (size_t k = 0; k < kInputs; ++k) {
      const size_t stride = k == 0 ? kFirstStride : Stored::kStride;
      __builtin_memcpy(padded[k], inputs[k] + at * stride, count * stride);
      from[k] = padded[k];
    }
    Run(from, padded[kInputs], kLanes, factors);
    __builtin_memcpy(out + at * kOutStride, padded[kInputs], count * kOutStride);
  }
};

/// `inputs` are kInputs, none of them null.
template <class Stored, class Op, Pass kPass, size_t kInputs, Scaling kScaling>
MUSTER_INLINE void RunFold(const uint8_t* const* inputs,
                           uint8_t* out,
                           size_t count,
                           Factors<typename Stored::Lane> factors) {
  // Unscaled, all passes over what is its own accumulator are the same code.
  constexpr Pass kCode = Stored::kAccumulates && kScaling == Scaling::kNone ? Pass::kWhole : kPass;
  Fold<Stored, Op, kCode, kInputs, kScaling>::Run(inputs, out, count, factors);
}

/// The most inputs that one pass takes. Each is a stream for the prefetcher and code of its own;
/// a sum of what need not be converted is worth it.
template <class Stored, class Op>
inline constexpr size_t kInputsMax = 4;
template <class T>
inline constexpr size_t kInputsMax<Plain<T>, Sum> = 8;

/// One pass over 1 to kInputsMax inputs, none of them null.
template <class Stored, class Op, Scaling kScaling, size_t kInputs = kInputsMax<Stored, Op>>
void RunWhole(const uint8_t* const* inputs,
              size_t input_count,
              uint8_t* out,
              size_t count,
              Factors<typename Stored::Lane> factors) {
  if constexpr (kInputs == 1) {
    RunFold<typename Stored::OnePass, Sum, Pass::kWhole, 1, kScaling>(inputs, out, count, factors);
  } else if (input_count == kInputs) {
    RunFold<typename Stored::OnePass, Op, Pass::kWhole, kInputs, kScaling>(
        inputs, out, count, factors);
  } else {
    RunWhole<Stored, Op, kScaling, kInputs - 1>(inputs, input_count, out, count, factors);
  }
}

/// One block of more inputs than a pass takes. The first pass takes the odd ones, so that all
/// others take three beside the accumulators.
template <class Stored, class Op, Scaling kScaling, class PointerTo>
void RunPasses(PointerTo pointer_to,
               size_t input_count,
               uint8_t* out,
               size_t count,
               Factors<typename Stored::Lane> factors) {
  alignas(64) uint8_t accumulators[kPiece * sizeof(typename Stored::Lane)];
  const uint8_t* from[4] = {};
  const size_t first_count = (input_count - 1) % 3 + 1;
  for (size_t k = 0; k < first_count; ++k) {
    from[k] = pointer_to(k);
  }
  if (first_count == 1) {
    RunFold<Stored, Sum, Pass::kStart, 1, kScaling>(from, accumulators, count, factors);
  } else if (first_count == 2) {
    RunFold<Stored, Op, Pass::kStart, 2, kScaling>(from, accumulators, count, factors);
  } else {
    RunFold<Stored, Op, Pass::kStart, 3, kScaling>(from, accumulators, count, factors);
  }
  from[0] = accumulators;
  for (size_t done = first_count; done < input_count; done += 3) {
    for (size_t k = 0; k < 3; ++k) {
      from[k + 1] = pointer_to(done + k);
    }
    if (done + 3 < input_count) {
      RunFold<Stored, Op, Pass::kMiddle, 4, kScaling>(from, accumulators, count, factors);
    } else {
      RunFold<Stored, Op, Pass::kFinish, 4, kScaling>(from, out, count, factors);
    }
  }
}

template <class Stored, class Op, Scaling kScaling>
void FoldMany(const uint8_t* const* inputs,
              size_t input_count,
              uint8_t* out,
              size_t count,
              Factors<typename Stored::Lane> factors) {
  constexpr size_t kMax = kInputsMax<Stored, Op>;
  bool nulls = false;
  for (size_t k = 0; k < input_count; ++k) {
    nulls = nulls || inputs[k] == nullptr;
  }
  if (input_count <= kMax && !nulls) {
    return RunWhole<Stored, Op, kScaling>(inputs, input_count, out, count, factors);
  }
  for (size_t at = 0; at < count; at += kPiece) {
    const size_t size = count - at < kPiece ? count - at : kPiece;
    const auto pointer_to = [inputs, at](size_t k) {
      return inputs[k] == nullptr ? kZeros : inputs[k] + at * Stored::kStride;
    };
    if (input_count > kMax) {
      RunPasses<Stored, Op, kScaling>(
          pointer_to, input_count, out + at * Stored::kStride, size, factors);
      continue;
    }
    const uint8_t* from[kMax] = {};
    for (size_t k = 0; k < input_count; ++k) {
      from[k] = pointer_to(k);
    }
    RunWhole<Stored, Op, kScaling>(from, input_count, out + at * Stored::kStride, size, factors);
  }
}

}  // namespace
}  // namespace muster::kernels::MUSTER_LEVEL_NAMESPACE
