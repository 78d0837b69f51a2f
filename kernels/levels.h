#pragma once

// The kernels of one level of instructions (baseline, AVX2), as a table of functions, and the
// choice among the tables. Internal to kernels/ and its tests.
//
// The same source (level_kernels.h) is compiled once per level, with other flags. Nothing that the
// linker may merge with code of another file can be in such a file, or the AVX2 copy of it could
// run on a machine without AVX2: only unnamed namespaces, builtins and intrinsics there, nothing
// of std. A test looks at the object.
//
// SelectLevel is for tests and not to be called while kernels run; all else is thread-safe.

#include <cstddef>
#include <cstdint>

#include "kernels/reduce.h"
#include "kernels/scale.h"

namespace muster::kernels {

/// In ascending order of preference.
enum class Level : uint8_t { kBaseline, kAvx2 };
inline constexpr Level kLevels[] = {Level::kBaseline, Level::kAvx2};

/// As the functions of reduce.h and scale.h that bear these names; plans are checked already.
struct LevelKernels {
  void (*reduce_many)(const ReducePlan& plan,
                      const void* const* inputs,
                      size_t input_count,
                      void* out,
                      size_t count);
  void (*widen)(const ReducePlan& plan, const void* in, void* accumulators, size_t count);
  void (*combine)(const ReducePlan& plan, void* out, const void* a, const void* b, size_t count);
  void (*narrow)(const ReducePlan& plan, const void* accumulators, void* out, size_t count);
  void (*adasum_combine)(Element type, void* out, const void* a, const void* b, size_t count);
  void (*scale)(const void* in, void* out, Element type, size_t count, double factor);
};

const LevelKernels& BaselineKernels();
const LevelKernels& Avx2Kernels();  // On x86-64 only.

/// Null where it was not built or this machine cannot run it.
const LevelKernels* KernelsOf(Level level);

/// The table in use: the best that this machine can run, unless a test selected another.
const LevelKernels& ActiveKernels();
/// False, and nothing changes, where KernelsOf(level) is null.
bool SelectLevel(Level level);

}  // namespace muster::kernels
