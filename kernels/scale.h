#pragma once

// Scale: multiplies a buffer by a factor (prescale, postscale, the division of an average). This is
// the CPU twin of the CUDA kernel: same arguments but for the stream, same results to the bit.
// Not a reduction, and it knows nothing of tensors or ranks: raw buffers in, nothing of ours
// included.
//
// Thread-safe: no state. Buffers may be equal, but must not overlap otherwise.

#include <cstddef>
#include <cstdint>

namespace muster::kernels {

/// Types of elements, numbered as in the public API.
enum class Element : uint8_t { kU8, kI8, kU16, kI16, kI32, kI64, kF16, kBF16, kF32, kF64, kBool };

/// Bytes of one element.
size_t SizeOf(Element type);

/// out[i] = in[i] * factor, for `count` elements.
///  - f64 in double, f32 in float (the factor is rounded to float first);
///  - f16 and bf16 in float, rounded once at the end to the nearest, ties to even;
///  - integers in double, truncated toward zero; what does not fit becomes the nearest value that
///    does, NaN becomes 0. Beyond 2^53 an i64 loses its low bits in double, which is why a factor
///    of exactly 1 copies;
///  - bool: true where the product is not 0.
void Scale(const void* in, void* out, Element type, size_t count, double factor);

}  // namespace muster::kernels
