#pragma once

// The two 16-bit floats as bit patterns, to and from float: IEEE binary16 (f16) and bfloat16.
// Rounding is to the nearest, ties to even; NaN stays a (quiet) NaN, overflow becomes infinity,
// subnormals are kept. Not arithmetic: compute in float.
//
// Thread-safe: no state.

#include <bit>
#include <cstdint>

namespace muster::kernels {

inline float FloatFromBf16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t Bf16FromFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
    // Rounding could carry a NaN over into infinity or to a negative zero.
    return static_cast<uint16_t>((bits >> 16) | 0x40U);
  }
  const uint32_t odd = (bits >> 16) & 1U;
  return static_cast<uint16_t>((bits + 0x7FFFU + odd) >> 16);
}

inline float FloatFromF16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1FU;
  const uint32_t mantissa = bits & 0x3FFU;
  if (exponent == 0x1F) {                                  // Infinity or NaN.
    const uint32_t quiet = mantissa == 0 ? 0 : 0x400000U;  // As processors do.
    return std::bit_cast<float>(sign | 0x7F800000U | quiet | (mantissa << 13));
  }
  if (exponent == 0) {  // Zero or subnormal: mantissa times 2^-24, exact in float.
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
  return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (mantissa << 13));
}

inline uint16_t F16FromFloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000U);
  const uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {
    return static_cast<uint16_t>(sign | 0x7E00U | ((magnitude >> 13) & 0x3FFU));
  }
  if (magnitude >= 0x477FF000U) {  // From 65520 on, half way to 65536, all rounds to infinity.
    return static_cast<uint16_t>(sign | 0x7C00U);
  }
  if (magnitude < 0x38800000U) {  // Below 2^-14: subnormal. Adding 0.5 lines up its last bit with
                                  // float's, so that the FPU does the rounding.
    const float lined_up = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(lined_up) - 0x3F000000U));
  }
  const uint32_t odd = (magnitude >> 13) & 1U;
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000U + 0xFFFU + odd) >> 13));
}

}  // namespace muster::kernels
