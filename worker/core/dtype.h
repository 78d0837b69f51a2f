#pragma once

// Sizes and names of the public enums. Pure.

#include <cstdint>
#include <optional>
#include <string>

#include "muster/muster.h"
#include "worker/core/log_types.h"

namespace muster::worker {

inline constexpr uint8_t kDTypeCount = 11;
inline constexpr uint8_t kOpCount = 6;
inline constexpr uint8_t kBackendKindCount = 3;
inline constexpr uint8_t kOpKindCount = 10;

/// Bytes of one element.
size_t ElementSize(DType dtype);
const char* Name(DType dtype);
const char* Name(Op op);
const char* Name(OpKind kind);
const char* Name(BackendKind kind);
bool IsFloating(DType dtype);

/// Elements of the shape; nothing if a size is negative or the bytes do not fit 63 bits.
std::optional<int64_t> ElementCount(const Shape& shape, DType dtype);

/// "[3, 4]"
std::string ToString(const Shape& shape);

}  // namespace muster::worker
