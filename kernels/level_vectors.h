#pragma once

// Vectors of one level: their types, unaligned loads and stores, and conversions of 16-bit floats.
// MUSTER_LEVEL_NAMESPACE and MUSTER_VECTOR_BYTES come from the file that
// includes this; levels.h says what may not be used here.
//
// Pure functions.

#include <cstddef>
#include <cstdint>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#define MUSTER_INLINE inline __attribute__((always_inline))
/// One copy of the code, however many callers.
#define MUSTER_OUTLINE __attribute__((noinline))

namespace muster::kernels::MUSTER_LEVEL_NAMESPACE {
namespace {

inline constexpr size_t kVectorBytes = MUSTER_VECTOR_BYTES;

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

// By hand, because compilers take such conversions apart element by element.
#if defined(__AVX2__)

MUSTER_INLINE Words WordsFromHalves(Halves halves) {
  return reinterpret_cast<Words>(_mm256_cvtepu16_epi32(reinterpret_cast<__m128i>(halves)));
}
/// Every word is below 65536.
MUSTER_INLINE Halves HalvesFromWords(Words words) {
  const __m256i none = _mm256_setzero_si256();
  const __m256i pairs = _mm256_packus_epi32(reinterpret_cast<__m256i>(words), none);
  return reinterpret_cast<Halves>(_mm256_castsi256_si128(_mm256_permute4x64_epi64(pairs, 0b1000)));
}

#elif defined(__SSE2__)

MUSTER_INLINE Words WordsFromHalves(Halves halves) {
  const __m128i low = _mm_cvtsi64_si128(__builtin_bit_cast(int64_t, halves));
  return reinterpret_cast<Words>(_mm_unpacklo_epi16(low, _mm_setzero_si128()));
}
/// Every word is below 65536.
MUSTER_INLINE Halves HalvesFromWords(Words words) {
  // There is only a saturating pack of signed words: extend the sign for it.
  const __m128i extended = _mm_srai_epi32(_mm_slli_epi32(reinterpret_cast<__m128i>(words), 16), 16);
  return __builtin_bit_cast(Halves, _mm_cvtsi128_si64(_mm_packs_epi32(extended, extended)));
}

#else

MUSTER_INLINE Words WordsFromHalves(Halves halves) {
  return __builtin_convertvector(halves, Words);
}
/// Every word is below 65536.
MUSTER_INLINE Halves HalvesFromWords(Words words) {
  return __builtin_convertvector(words, Halves);
}

#endif

/// The upper half of each word is the bf16; what the lower one is, is left open.
MUSTER_INLINE Words RoundToBf16(Floats floats) {
  const Words bits = reinterpret_cast<Words>(floats);
  const Words rounded = bits + 0x7FFFU + ((bits >> 16) & 1U);
  return floats == floats ? rounded : bits | 0x400000U;
}

MUSTER_INLINE Floats FloatsFromBf16(Halves halves) {
  return reinterpret_cast<Floats>(WordsFromHalves(halves) << 16);
}
MUSTER_INLINE Halves Bf16FromFloats(Floats floats) {
  return HalvesFromWords(RoundToBf16(floats) >> 16);
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

}  // namespace
}  // namespace muster::kernels::MUSTER_LEVEL_NAMESPACE
