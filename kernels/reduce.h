#pragma once

// Reductions over raw buffers on the CPU, vectorised for the machine at run time: the bits are the
// same whatever the machine. Nothing here knows of tensors or ranks.
//
// A reduction of several inputs is computed in an accumulator type, element by element, in the
// order of the inputs, and rounded once at the end:
//
//   stored                    sum, min, max, product    average
//   f16, bf16                 f32                       f32
//   f32, f64                  itself                    itself
//   u8 i8 u16 i16 i32         itself, wrapping          i64
//   i64                       itself, wrapping          i128
//   bool                      bool (sum, max: OR; min, product: AND)   refused by the caller
//
// Prescale multiplies each input after it was widened, postscale (divided by `divisor`, for an
// average) the result before it is narrowed. Floats are multiplied in their accumulator's type (the
// factor, postscale / divisor, is computed in double and rounded to it), as scale.h does; integers
// in double, first by postscale and then divided, truncated toward zero and saturated. An integer
// average without a postscale divides exactly, truncating toward zero, and saturates; its sum
// saturates too, which it comes to only after a large prescale. A minimum or maximum with a NaN is
// NaN; which NaN a result has, where two of them meet, is left open. A bool may be any byte but 0
// if true, and is 1 in results.
//
// Thread-safe: no state. Buffers need no alignment.

#include <cstddef>
#include <cstdint>

#include "kernels/scale.h"

namespace muster::kernels {

/// Numbered as Op in the public API; adasum is not computed here.
enum class ReduceOp : uint8_t { kAverage, kSum, kAdasum, kMin, kMax, kProduct };

struct ReducePlan {
  Element type = Element::kF32;
  ReduceOp op = ReduceOp::kSum;
  double prescale = 1;
  double postscale = 1;
  int divisor = 1;  // kAverage only.
};

/// Bytes of one accumulator: 1, 2, 4, 8 or 16.
size_t AccumulatorSize(const ReducePlan& plan);
/// The accumulator is the stored type and neither factor changes anything: Widen and Narrow copy.
bool IsDirect(const ReducePlan& plan);

/// out[i] = narrow(post(op over k of pre(widen(inputs[k][i])))). A null input is all zeros. `out`
/// may equal any of the inputs, but overlap none in part. At least one input.
void ReduceMany(
    const ReducePlan& plan, const void* const* inputs, size_t input_count, void* out, size_t count);

/// The same in steps, for transports that reduce two buffers at a time.
void Widen(const ReducePlan& plan, const void* in, void* accumulators, size_t count);
/// out[i] = op(a[i], b[i]), all accumulators. `out` may be `a` or `b`.
void Combine(const ReducePlan& plan, void* out, const void* a, const void* b, size_t count);
void Narrow(const ReducePlan& plan, const void* accumulators, void* out, size_t count);

/// The combination of Adasum (Maleki et al., "Scaling distributed training with adaptive
/// summation", 2020) of two vectors: out = a * (1 - a.b / (2 |a|^2)) + b * (1 - a.b / (2 |b|^2)),
/// where the second term of a factor is 0 if that vector is 0. f16, bf16, f32, f64 only; dot
/// products in double, in a fixed order. `out` may be `a` or `b`.
void AdasumCombine(Element type, void* out, const void* a, const void* b, size_t count);

}  // namespace muster::kernels
