#pragma once

// Copying and summing floats at the speed of the machine, for the contestants that bring no loops
// of their own. Kept apart from Muster's kernels, which they are measured against.
//
// No state; any thread.

#include <cstddef>

namespace muster::bench {

struct Loops {
  void (*copy)(float* out, const float* in, size_t count) = nullptr;
  void (*add)(float* out, const float* in, size_t count) = nullptr;  // out[i] += in[i]; apart.
};

/// For the processor at hand.
Loops BestLoops();

}  // namespace muster::bench
