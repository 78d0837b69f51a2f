#pragma once

// Sizes and names of element types. Pure functions, no state.

#include <cstddef>
#include <cstdint>

#include "muster/muster.h"

namespace muster::worker {

/// Bytes of one element.
constexpr size_t ElementSize(DType dtype) {
  switch (dtype) {
    case DType::kU8:
    case DType::kI8:
    case DType::kBool:
      return 1;
    case DType::kU16:
    case DType::kI16:
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kI32:
    case DType::kF32:
      return 4;
    case DType::kI64:
    case DType::kF64:
      return 8;
  }
  return 0;  // Not an element type: bytes from outside may hold any number.
}

constexpr const char* DTypeName(DType dtype) {
  constexpr const char* kNames[] = {
      "u8", "i8", "u16", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", "bool"};
  return static_cast<size_t>(dtype) < sizeof kNames / sizeof *kNames
             ? kNames[static_cast<size_t>(dtype)]
             : "unknown";
}

/// A scalar (empty shape) has one element.
inline size_t ElementCount(const Shape& shape) {
  size_t count = 1;
  for (const int64_t extent : shape) {
    count *= static_cast<size_t>(extent);
  }
  return count;
}

inline size_t ByteSize(DType dtype, const Shape& shape) {
  return ElementCount(shape) * ElementSize(dtype);
}
inline size_t ByteSize(const Tensor& tensor) {
  return ByteSize(tensor.dtype, tensor.shape);
}

}  // namespace muster::worker
