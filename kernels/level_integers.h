#pragma once

// Integers of one level where the accumulator is another type or a factor applies: averages and
// scaled reductions. They go piece by piece through accumulators, one input after the other.
// Included by level_kernels.h; levels.h says what may not be used here.
//
// Pure functions. Inputs and outputs may be equal, and need no alignment.

#include "kernels/level_fold.h"
#include "kernels/reduce.h"

namespace muster::kernels::MUSTER_LEVEL_NAMESPACE {
namespace {

__extension__ typedef __int128 Int128;
__extension__ typedef unsigned __int128 Uint128;

template <class T>
MUSTER_INLINE T LoadOne(const uint8_t* from, size_t index) {
  T value;
  __builtin_memcpy(&value, from + index * sizeof(T), sizeof(T));
  return value;
}
template <class T>
MUSTER_INLINE void StoreOne(uint8_t* to, size_t index, T value) {
  __builtin_memcpy(to + index * sizeof(T), &value, sizeof(T));
}

template <class T>
inline constexpr bool kIsSigned = static_cast<T>(-1) < static_cast<T>(0);
template <class T>
inline constexpr T kHalfOfMax = static_cast<T>(static_cast<T>(1)
                                               << (8 * sizeof(T) - (kIsSigned<T> ? 2 : 1)));
template <class T>
inline constexpr T kMaxOf = static_cast<T>(kHalfOfMax<T> - 1 + kHalfOfMax<T>);
template <class T>
inline constexpr T kMinOf = kIsSigned<T> ? static_cast<T>(-kMaxOf<T> - 1) : static_cast<T>(0);

/// Toward zero; what does not fit becomes the nearest value that does, NaN becomes 0.
template <class T>
MUSTER_INLINE T Truncate(double value) {
  if constexpr (sizeof(T) <= 4) {  // All of these fit into an int32_t. Without a branch.
    constexpr double kLow = kMinOf<T>;
    constexpr double kHigh = kMaxOf<T>;
    value = value < kLow ? kLow : value;
    value = value > kHigh ? kHigh : value;
    value = value == value ? value : 0;
    return static_cast<T>(static_cast<int32_t>(value));
  } else {
    // The bounds are powers of two, exact in double; the maximum itself is not.
    constexpr double kLow = static_cast<double>(kMinOf<T>);
    constexpr double kEnd = static_cast<double>(kHalfOfMax<T>) * 2;
    if (value != value) {
      return 0;
    }
    if (value <= kLow) {
      return kMinOf<T>;
    }
    return value >= kEnd ? kMaxOf<T> : static_cast<T>(value);
  }
}

template <class T, class Wide>
MUSTER_INLINE T Saturate(Wide value) {
  if (value < static_cast<Wide>(kMinOf<T>)) {
    return kMinOf<T>;
  }
  return value > static_cast<Wide>(kMaxOf<T>) ? kMaxOf<T> : static_cast<T>(value);
}

template <class T>
void ScaleIntegers(const uint8_t* in, uint8_t* out, size_t count, double factor) {
  // By way of a local array, which nothing else overlaps: else `out` may be `in` to the compiler,
  // and it gives up on vectors.
  alignas(64) T piece[kPiece];
  for (size_t at = 0; at < count; at += kPiece) {
    const size_t size = count - at < kPiece ? count - at : kPiece;
    const uint8_t* from = in + at * sizeof(T);
    for (size_t i = 0; i < size; ++i) {
      piece[i] = Truncate<T>(static_cast<double>(LoadOne<T>(from, i)) * factor);
    }
    __builtin_memcpy(out + at * sizeof(T), piece, size * sizeof(T));
  }
}

// ---------------------------------------------------------------- averages

/// Sums of averages saturate, for a prescale may have taken the inputs anywhere.
struct SaturatingSum {
  static MUSTER_INLINE Vector<int64_t> Apply(Vector<int64_t> a, Vector<int64_t> b) {
    const Vector<int64_t> sum = reinterpret_cast<Vector<int64_t>>(
        reinterpret_cast<Vector<uint64_t>>(a) + reinterpret_cast<Vector<uint64_t>>(b));
    const Vector<int64_t> bound = (a < 0) ^ kMaxOf<int64_t>;
    return ((a ^ sum) & (b ^ sum)) < 0 ? bound : sum;
  }
};

inline void AddAverages(
    uint8_t* out, const uint8_t* a, const uint8_t* b, size_t count, int64_t /*tag*/) {
  const uint8_t* inputs[] = {a, b};
  RunFold<Plain<int64_t>, SaturatingSum, Pass::kWhole, 2, Scaling::kNone>(
      inputs, out, count, {1, 1});
}

inline void AddAverages(
    uint8_t* out, const uint8_t* a, const uint8_t* b, size_t count, Int128 /*tag*/) {
  for (size_t i = 0; i < count; ++i) {
    const auto left = LoadOne<Int128>(a, i);
    const auto right = LoadOne<Int128>(b, i);
    const auto sum = static_cast<Int128>(static_cast<Uint128>(left) + static_cast<Uint128>(right));
    const bool overflows = ((left ^ sum) & (right ^ sum)) < 0;
    const Int128 bound = left < 0 ? kMinOf<Int128> : kMaxOf<Int128>;
    StoreOne<Int128>(out, i, overflows ? bound : sum);
  }
}

/// Quotients by way of double, vectors of which the machine can divide. Exact while dividend and
/// divisor together are below 2^53: then no quotient is so close below an integer that it rounds
/// up to it.
template <class T>
void DivideSmall(const uint8_t* sums, T* out, size_t count, double divisor) {
  // A double of this exponent has units of 1, and this one has room for 51 bits with a sign. So
  // the sum of its bits and an integer is the double that is its value plus that integer.
  constexpr double kUnits = 0x1.8p52;
  constexpr uint64_t kUnitsBits = 0x4338000000000000U;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t shifted = LoadOne<uint64_t>(sums, i) + kUnitsBits;
    out[i] = Truncate<T>((__builtin_bit_cast(double, shifted) - kUnits) / divisor);
  }
}

template <class T>
void DividePiece(const uint8_t* sums, T* out, size_t count, int divisor, int64_t /*tag*/) {
  uint64_t used = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto sum = LoadOne<int64_t>(sums, i);
    used |= static_cast<uint64_t>(sum < 0 ? ~sum : sum);
  }
  if (used >> 50 == 0) {
    return DivideSmall(sums, out, count, divisor);
  }
  for (size_t i = 0; i < count; ++i) {
    out[i] = Saturate<T>(LoadOne<int64_t>(sums, i) / divisor);
  }
}

template <class T>
void DividePiece(const uint8_t* sums, T* out, size_t count, int divisor, Int128 /*tag*/) {
  for (size_t i = 0; i < count; ++i) {
    const auto sum = LoadOne<Int128>(sums, i);
    const auto low = static_cast<int64_t>(sum);
    // Most sums fit, and a division of 128 bits is a call.
    out[i] = low == sum ? Saturate<T>(low / divisor) : Saturate<T>(sum / divisor);
  }
}

/// Integers of type T with accumulators of type A: T itself, or for an average a wider one.
template <class T, class A>
struct Integers {
  static constexpr bool kAverages = sizeof(A) > sizeof(T);

  static void Widen(const uint8_t* in, uint8_t* accumulators, size_t count, double prescale) {
    if (prescale != 1) {
      for (size_t i = 0; i < count; ++i) {
        const double value = static_cast<double>(LoadOne<T>(in, i)) * prescale;
        StoreOne<A>(accumulators, i, Truncate<A>(value));
      }
    } else if constexpr (kAverages) {
      for (size_t i = 0; i < count; ++i) {
        StoreOne<A>(accumulators, i, static_cast<A>(LoadOne<T>(in, i)));
      }
    } else if (in != accumulators) {
      __builtin_memcpy(accumulators, in, count * sizeof(T));
    }
  }

  static void Narrow(const ReducePlan& plan,
                     const uint8_t* accumulators,
                     uint8_t* out,
                     size_t count) {
    alignas(64) T piece[kPiece];
    for (size_t at = 0; at < count; at += kPiece) {
      const size_t size = count - at < kPiece ? count - at : kPiece;
      NarrowPiece(plan, accumulators + at * sizeof(A), piece, size);
      __builtin_memcpy(out + at * sizeof(T), piece, size * sizeof(T));
    }
  }

 private:
  static void NarrowPiece(const ReducePlan& plan, const uint8_t* from, T* piece, size_t count) {
    if constexpr (kAverages) {
      if (plan.postscale == 1) {
        return DividePiece(from, piece, count, plan.divisor, A{});
      }
    } else if (plan.postscale == 1) {
      __builtin_memcpy(piece, from, count * sizeof(T));
      return;
    }
    // Multiplied first: 49 * 2 / 49 is 2, but 49 * (2 / 49) is a little less and truncates to 1.
    const double divisor = kAverages ? plan.divisor : 1;
    const double postscale = plan.postscale;
    for (size_t i = 0; i < count; ++i) {
      const auto value = static_cast<double>(LoadOne<A>(from, i));
      piece[i] = Truncate<T>(value * postscale / divisor);
    }
  }
};

}  // namespace
}  // namespace muster::kernels::MUSTER_LEVEL_NAMESPACE
