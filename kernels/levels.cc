#include "kernels/levels.h"

#include <atomic>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace muster::kernels {
namespace {

#if defined(__x86_64__)
bool RunsAvx2() {
  // "avx2" includes that the system saves the wide registers. F16C is asked for by hand because
  // not every compiler's builtin knows it; a virtual machine may hide it.
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  return f16c && __builtin_cpu_supports("avx2") != 0;
}
#endif

const LevelKernels* Best() {
  const LevelKernels* best = &BaselineKernels();
  for (const Level level : kLevels) {
    if (const LevelKernels* kernels = KernelsOf(level); kernels != nullptr) {
      best = kernels;
    }
  }
  return best;
}

std::atomic<const LevelKernels*>& Active() {
  static std::atomic<const LevelKernels*> active{Best()};
  return active;
}

}  // namespace

const LevelKernels* KernelsOf(Level level) {
  switch (level) {
    case Level::kBaseline:
      return &BaselineKernels();
    case Level::kAvx2:
#if defined(__x86_64__)
      return RunsAvx2() ? &Avx2Kernels() : nullptr;
#else
      return nullptr;
#endif
  }
  return nullptr;
}

const LevelKernels& ActiveKernels() {
  return *Active().load(std::memory_order_relaxed);
}

bool SelectLevel(Level level) {
  const LevelKernels* kernels = KernelsOf(level);
  if (kernels == nullptr) {
    return false;
  }
  Active().store(kernels, std::memory_order_relaxed);
  return true;
}

}  // namespace muster::kernels
