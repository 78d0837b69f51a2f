// Compiled with -O3 whatever the build's level is, and for AVX2 besides: what bounds the floor must
// not be the compiler.

#include "bench/loops.h"

#include <algorithm>

namespace muster::bench {
namespace {

// Not memcpy: for these sizes glibc takes `rep movsb`, which on Zen 3 is over ten times slower
// where the target lies 1 to 31 bytes after the source, modulo a page. Segment to tensor does.
using Lanes = float __attribute__((vector_size(32), aligned(4), may_alias));
constexpr size_t kLanes = sizeof(Lanes) / sizeof(float);

[[gnu::always_inline]] inline void CopyLanes(float* out, const float* in, size_t count) {
  size_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    const auto* from = reinterpret_cast<const Lanes*>(in + i);
    auto* to = reinterpret_cast<Lanes*>(out + i);
    const Lanes a = from[0];
    const Lanes b = from[1];
    const Lanes c = from[2];
    const Lanes d = from[3];
    to[0] = a;
    to[1] = b;
    to[2] = c;
    to[3] = d;
    asm volatile("" ::: "memory");  // Or the compiler makes it a call of memcpy again.
  }
  std::copy(in + i, in + count, out + i);
}

[[gnu::always_inline]] inline void AddLanes(float* __restrict out,
                                            const float* __restrict in,
                                            size_t count) {
  for (size_t i = 0; i < count; ++i) {
    out[i] += in[i];
  }
}

void CopyPlain(float* out, const float* in, size_t count) {
  CopyLanes(out, in, count);
}
void AddPlain(float* out, const float* in, size_t count) {
  AddLanes(out, in, count);
}
#if defined(__x86_64__)
[[gnu::target("avx2")]] void CopyAvx2(float* out, const float* in, size_t count) {
  CopyLanes(out, in, count);
}
[[gnu::target("avx2")]] void AddAvx2(float* out, const float* in, size_t count) {
  AddLanes(out, in, count);
}
#endif

}  // namespace

Loops BestLoops() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) {
    return {.copy = CopyAvx2, .add = AddAvx2};
  }
#endif
  return {.copy = CopyPlain, .add = AddPlain};
}

}  // namespace muster::bench
