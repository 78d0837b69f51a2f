#include "worker/core/dtype.h"

#include <limits>

#include "common/check.h"

namespace muster::worker {

size_t ElementSize(DType dtype) {
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
  MUSTER_CHECK(false, "no such dtype");
  return 0;
}

const char* Name(DType dtype) {
  static constexpr const char* kNames[kDTypeCount] = {
      "u8", "i8", "u16", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", "bool"};
  return kNames[static_cast<size_t>(dtype)];
}

const char* Name(Op op) {
  static constexpr const char* kNames[kOpCount] = {
      "average", "sum", "adasum", "min", "max", "product"};
  return kNames[static_cast<size_t>(op)];
}

const char* Name(OpKind kind) {
  static constexpr const char* kNames[kOpKindCount] = {"allreduce",
                                                       "allgather",
                                                       "broadcast",
                                                       "alltoall",
                                                       "reducescatter",
                                                       "barrier",
                                                       "agreement",
                                                       "join",
                                                       "add_process_set",
                                                       "remove_process_set"};
  return kNames[static_cast<size_t>(kind)];
}

const char* Name(BackendKind kind) {
  static constexpr const char* kNames[kBackendKindCount] = {"shm", "hierarchical", "gloo"};
  return kNames[static_cast<size_t>(kind)];
}

bool IsFloating(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 ||
         dtype == DType::kF64;
}

std::optional<int64_t> ElementCount(const Shape& shape, DType dtype) {
  const int64_t limit =
      std::numeric_limits<int64_t>::max() / static_cast<int64_t>(ElementSize(dtype));
  bool fits = true;
  bool has_zero = false;
  int64_t count = 1;
  for (const int64_t size : shape) {
    if (size < 0) {
      return std::nullopt;
    }
    has_zero = has_zero || size == 0;
    fits = fits && (size == 0 || count <= limit / size);
    count = fits ? count * size : 0;
  }
  if (has_zero) {
    return 0;  // Empty, whatever the sizes before and after the zero come to.
  }
  return fits ? std::optional(count) : std::nullopt;
}

std::string ToString(const Shape& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
  }
  return text + "]";
}

}  // namespace muster::worker
