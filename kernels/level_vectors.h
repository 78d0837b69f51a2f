#pragma once

// Vectors of one level: their types, unaligned loads and stores, and the stored formats that
// kernels compute with. MUSTER_LEVEL_NAMESPACE and MUSTER_VECTOR_BYTES come from the file that
// includes this; levels.h says what may not be used here.
//
// Pure functions.

#include <cstddef>
#include <cstdint>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define MUSTER_INLINE inline __attribute__((always_inline))
/// One copy of the code, however many callers.
#define MUSTER_OUTLINE __attribute__((noinline))

namespace muster::kernels::MUSTER_LEVEL_NAMESPACE {
namespace {

constexpr size_t kVectorBytes = MUSTER_VECTOR_BYTES;

template <class T, size_t kBytes = kVectorBytes>
struct VectorTypes {
  typedef T Aligned __attribute__((vector_size(kBytes)));
  typedef T Unaligned __attribute__((vector_size(kBytes), aligned(1), may_alias));
};
template <class T>
using Vector = typename VectorTypes<T>::Aligned;
using Floats = Vector<float>;
using Words = Vector<uint32_t>;
using SignedWords = Vector<int32_t>;
/// As many 16-bit patterns as Floats has lanes.
using Halves = VectorTypes<uint16_t, kVectorBytes / 2>::Aligned;

template <class T, size_t kBytes = kVectorBytes>
MUSTER_INLINE typename VectorTypes<T, kBytes>::Aligned LoadVector(const uint8_t* from) {
  return *reinterpret_cast<const typename VectorTypes<T, kBytes>::Unaligned*>(from);
}
template <class T, size_t kBytes = kVectorBytes>
MUSTER_INLINE void StoreVector(uint8_t* to, typename VectorTypes<T, kBytes>::Aligned value) {
  *reinterpret_cast<typename VectorTypes<T, kBytes>::Unaligned*>(to) = value;
}

// ---------------------------------------------------------------- 16-bit floats, as half.h

MUSTER_INLINE Words WordsFromHalves(Halves halves) {
#if defined(__AVX2__)
  return reinterpret_cast<Words>(_mm256_cvtepu16_epi32(reinterpret_cast<__m128i>(halves)));
#else
  return __builtin_convertvector(halves, Words);
#endif
}
/// Every word is below 65536.
MUSTER_INLINE Halves HalvesFromWords(Words words) {
#if defined(__AVX2__)
  const __m256i pairs =
      _mm256_packus_epi32(reinterpret_cast<__m256i>(words), _mm256_setzero_si256());
  return reinterpret_cast<Halves>(_mm256_castsi256_si128(_mm256_permute4x64_epi64(pairs, 0b1000)));
#else
  return __builtin_convertvector(words, Halves);
#endif
}

MUSTER_INLINE Floats FloatsFromBf16(Halves halves) {
  return reinterpret_cast<Floats>(WordsFromHalves(halves) << 16);
}

MUSTER_INLINE Halves Bf16FromFloats(Floats floats) {
  const Words bits = reinterpret_cast<Words>(floats);
  const Words rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const Words quieted = (bits >> 16) | 0x40U;
  return HalvesFromWords(floats == floats ? rounded : quieted);
}

#if defined(__F16C__)

MUSTER_INLINE Floats FloatsFromF16(Halves halves) {
  return _mm256_cvtph_ps(reinterpret_cast<__m128i>(halves));
}
MUSTER_INLINE Halves F16FromFloats(Floats floats) {
  return reinterpret_cast<Halves>(_mm256_cvtps_ph(floats, _MM_FROUND_TO_NEAREST_INT));
}

#else

// All cases of half.h are computed for all lanes, then chosen among.
MUSTER_INLINE Floats FloatsFromF16(Halves halves) {
  const Words bits = WordsFromHalves(halves);
  const Words sign = (bits & 0x8000U) << 16;
  const Words magnitude = (bits & 0x7FFFU) << 13;
  const Words normal = magnitude + (112U << 23);
  const SignedWords mantissa = reinterpret_cast<SignedWords>(bits & 0x3FFU);
  const Words subnormal =
      reinterpret_cast<Words>(__builtin_convertvector(mantissa, Floats) * 0x1p-24F);
  const Words infinite = magnitude | 0x7F800000U;
  const SignedWords order = reinterpret_cast<SignedWords>(magnitude);
  Words result = order < 0x00800000 ? subnormal : normal;
  result = order >= 0x0F800000 ? infinite : result;
  result = order > 0x0F800000 ? infinite | 0x400000U : result;
  return reinterpret_cast<Floats>(result | sign);
}

MUSTER_INLINE Halves F16FromFloats(Floats floats) {
  const Words bits = reinterpret_cast<Words>(floats);
  const Words sign = (bits >> 16) & 0x8000U;
  const Words magnitude = bits & 0x7FFFFFFFU;
  const Words odd = (magnitude >> 13) & 1U;
  const Words normal = (magnitude - 0x38000000U + 0xFFFU + odd) >> 13;
  const Words subnormal =
      reinterpret_cast<Words>(reinterpret_cast<Floats>(magnitude) + 0.5F) - 0x3F000000U;
  const Words nan = ((magnitude >> 13) & 0x3FFU) | 0x7E00U;
  const Words infinite = Words{} + 0x7C00U;
  const SignedWords order = reinterpret_cast<SignedWords>(magnitude);
  Words result = order < 0x38800000 ? subnormal : normal;
  result = order >= 0x477FF000 ? infinite : result;
  result = order > 0x7F800000 ? nan : result;
  return HalvesFromWords(result | sign);
}

#endif

// ---------------------------------------------------------------- formats

// A format says how elements are stored and what they are computed in: Load and Store move one
// vector of lanes, whatever the bytes of it in memory.

/// Stored as what it is computed in.
template <class T>
struct Plain {
  using Lane = T;
  using Accumulator = Plain;
  static constexpr bool kAccumulates = true;
  static constexpr size_t kStride = sizeof(T);
  static MUSTER_INLINE Vector<T> Load(const uint8_t* from) { return LoadVector<T>(from); }
  static MUSTER_INLINE void Store(uint8_t* to, Vector<T> value) { StoreVector<T>(to, value); }
};

struct F16 {
  using Lane = float;
  using Accumulator = Plain<float>;
  static constexpr bool kAccumulates = false;
  static constexpr size_t kStride = 2;
  static MUSTER_INLINE Floats Load(const uint8_t* from) {
    return FloatsFromF16(LoadVector<uint16_t, kVectorBytes / 2>(from));
  }
  static MUSTER_INLINE void Store(uint8_t* to, Floats value) {
    StoreVector<uint16_t, kVectorBytes / 2>(to, F16FromFloats(value));
  }
};

struct Bf16 {
  using Lane = float;
  using Accumulator = Plain<float>;
  static constexpr bool kAccumulates = false;
  static constexpr size_t kStride = 2;
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
  using Accumulator = Bool;
  static constexpr bool kAccumulates = true;
  static constexpr size_t kStride = 1;
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
