#include "worker/shm/copy.h"

#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace muster::worker {

#if defined(__SSE2__)
namespace {

/// Below, memcpy does not use `rep movsb` and has the better code for the ends.
constexpr size_t kShort = 1024;
constexpr size_t kBlock = 64;

void CopyBlock(char* to, const char* from) {
  const auto* source = reinterpret_cast<const __m128i*>(from);
  auto* target = reinterpret_cast<__m128i*>(to);
  const __m128i a = _mm_loadu_si128(source);
  const __m128i b = _mm_loadu_si128(source + 1);
  const __m128i c = _mm_loadu_si128(source + 2);
  const __m128i d = _mm_loadu_si128(source + 3);
  _mm_storeu_si128(target, a);
  _mm_storeu_si128(target + 1, b);
  _mm_storeu_si128(target + 2, c);
  _mm_storeu_si128(target + 3, d);
}

}  // namespace

void CopyBytes(void* to, const void* from, size_t bytes) {
  if (bytes < kShort) {
    std::memcpy(to, from, bytes);
    return;
  }
  auto* target = static_cast<char*>(to);
  const auto* source = static_cast<const char*>(from);
  // The last block first, whole, over what the others leave.
  CopyBlock(target + bytes - kBlock, source + bytes - kBlock);
  for (size_t at = 0; at < bytes - kBlock; at += kBlock) {
    CopyBlock(target + at, source + at);
#if defined(__GNUC__)
    asm volatile("");  // Keeps the compiler from seeing a memcpy in this.
#endif
  }
}
#else
void CopyBytes(void* to, const void* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}
#endif

}  // namespace muster::worker
