#pragma once

// What kernels of one level compute with: the stored formats of elements, and the operations of
// two. Included by level_fold.h; levels.h says what may not be used here.
//
// Pure functions.

#include "kernels/level_vectors.h"

namespace muster::kernels::MUSTER_LEVEL_NAMESPACE {
namespace {

// ---------------------------------------------------------------- formats

// A format says how elements are stored and what they are computed in: Load and Store move one
// Value, kLanes elements, whatever the bytes of them in memory. Inputs that all go to a result of
// their own format may be read as OnePass, where values are arranged as it suits them.

/// Stored as what it is computed in.
template <class T>
struct Plain {
  using Lane = T;
  using Value = Vector<T>;
  using OnePass = Plain;
  using Accumulator = Plain;
  static constexpr bool kAccumulates = true;
  static constexpr size_t kStride = sizeof(T);
  static constexpr size_t kLanes = kVectorBytes / sizeof(Lane);
  static MUSTER_INLINE Vector<T> Load(const uint8_t* from) { return LoadVector<T>(from); }
  static MUSTER_INLINE void Store(uint8_t* to, Vector<T> value) { StoreVector<T>(to, value); }
};

struct F16 {
  using Lane = float;
  using Value = Floats;
  using OnePass = F16;
  using Accumulator = Plain<float>;
  static constexpr bool kAccumulates = false;
  static constexpr size_t kStride = 2;
  static constexpr size_t kLanes = kVectorBytes / sizeof(Lane);
  static MUSTER_INLINE Floats Load(const uint8_t* from) {
    return FloatsFromF16(LoadVector<uint16_t, kVectorBytes / 2>(from));
  }
  static MUSTER_INLINE void Store(uint8_t* to, Floats value) {
    StoreVector<uint16_t, kVectorBytes / 2>(to, F16FromFloats(value));
  }
};

/// Every other element of a whole vector of bf16, and the ones between: upper halves and lower
/// halves of words, for which nothing has to be moved from lane to lane.
struct FloatPairs {
  Floats even;
  Floats odd;
};
MUSTER_INLINE FloatPairs operator+(FloatPairs a, FloatPairs b) {
  return {a.even + b.even, a.odd + b.odd};
}
MUSTER_INLINE FloatPairs operator*(FloatPairs a, float factor) {
  return {a.even * factor, a.odd * factor};
}

/// bf16 on the way to bf16. Little-endian, as all machines are that this is built for.
struct Bf16Pairs {
  using Lane = float;
  using Value = FloatPairs;
  using Accumulator = Plain<float>;
  static constexpr bool kAccumulates = false;
  static constexpr size_t kStride = 2;
  static constexpr size_t kLanes = kVectorBytes / 2;
  static MUSTER_INLINE FloatPairs Load(const uint8_t* from) {
    const Words words = LoadVector<uint32_t>(from);
    return {reinterpret_cast<Floats>(words << 16), reinterpret_cast<Floats>(words & 0xFFFF0000U)};
  }
  static MUSTER_INLINE void Store(uint8_t* to, FloatPairs value) {
    const Words even = RoundToBf16(value.even) >> 16;
    const Words odd = RoundToBf16(value.odd) & 0xFFFF0000U;
    StoreVector<uint32_t>(to, even | odd);
  }
};

struct Bf16 {
  using Lane = float;
  using Value = Floats;
  using OnePass = Bf16Pairs;
  using Accumulator = Plain<float>;
  static constexpr bool kAccumulates = false;
  static constexpr size_t kStride = 2;
  static constexpr size_t kLanes = kVectorBytes / sizeof(Lane);
  static MUSTER_INLINE Floats Load(const uint8_t* from) {
    return FloatsFromBf16(LoadVector<uint16_t, kVectorBytes / 2>(from));
  }
  static MUSTER_INLINE void Store(uint8_t* to, Floats value) {
    StoreVector<uint16_t, kVectorBytes / 2>(to, Bf16FromFloats(value));
  }
};

/// Any byte but 0 is true and becomes 1.
struct Bool {
  using Lane = uint8_t;
  using Value = Vector<uint8_t>;
  using OnePass = Bool;
  using Accumulator = Bool;
  static constexpr bool kAccumulates = true;
  static constexpr size_t kStride = 1;
  static constexpr size_t kLanes = kVectorBytes / sizeof(Lane);
  static MUSTER_INLINE Vector<uint8_t> Load(const uint8_t* from) {
    return reinterpret_cast<Vector<uint8_t>>(LoadVector<uint8_t>(from) != 0) & uint8_t{1};
  }
  static MUSTER_INLINE void Store(uint8_t* to, Vector<uint8_t> value) {
    StoreVector<uint8_t>(to, value);
  }
};

// ---------------------------------------------------------------- operations of two

struct Sum {
  template <class V>
  static MUSTER_INLINE V Apply(V a, V b) {
    return a + b;
  }
};
struct Product {
  template <class V>
  static MUSTER_INLINE V Apply(V a, V b) {
    return a * b;
  }
};
// The second comparison holds for a NaN in `a`; one in `b` fails the first.
struct Min {
  template <class V>
  static MUSTER_INLINE V Apply(V a, V b) {
    return ((a < b) | (a != a)) ? a : b;
  }
};
struct Max {
  template <class V>
  static MUSTER_INLINE V Apply(V a, V b) {
    return ((a > b) | (a != a)) ? a : b;
  }
};

}  // namespace
}  // namespace muster::kernels::MUSTER_LEVEL_NAMESPACE
