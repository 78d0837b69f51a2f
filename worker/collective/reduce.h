#pragma once

// Arithmetic on raw buffers: reduction of two buffers, scaling, and 16-bit floats. The results are
// the same on every machine: no fused or reordered operations across elements.
//
// Pure functions.

#include <cstddef>
#include <cstdint>

#include "muster/muster.h"

namespace muster::worker {

/// IEEE 754 binary16 and bfloat16, rounded to nearest even; NaN stays NaN.
float HalfToFloat(uint16_t half);
uint16_t FloatToHalf(float value);
float BFloat16ToFloat(uint16_t half);
uint16_t FloatToBFloat16(float value);

/// out[i] = op(a[i], b[i]). `out` may be `a` or `b`. Integer sums and products wrap; booleans: sum
/// and max are OR, min and product are AND; 16-bit floats are combined in float. A minimum or
/// maximum with a NaN is NaN.
void Reduce(DType dtype, Op op, void* out, const void* a, const void* b, size_t count);

/// out[i] = in[i] * factor, computed in double; integers truncate toward zero and saturate. Not
/// for booleans. `out` may be `in`.
void Scale(DType dtype, void* out, const void* in, size_t count, double factor);

/// Integers to int64 and back, saturating.
void WidenIntegers(DType dtype, int64_t* out, const void* in, size_t count);
void NarrowIntegers(DType dtype, void* out, const int64_t* in, size_t count);
/// 16-bit floats to float and back.
void WidenFloats(DType dtype, float* out, const void* in, size_t count);
void NarrowFloats(DType dtype, void* out, const float* in, size_t count);

}  // namespace muster::worker
