#include "test/worker/collective/typed_values.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/half.h"

namespace muster::worker {
namespace {

template <class T>
T Load(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

double Combined(const Reduction& what, double a, double b) {
  if (what.dtype == DType::kBool) {
    const bool all = what.op == Op::kMin || what.op == Op::kProduct;
    return all ? (a != 0 && b != 0) : (a != 0 || b != 0);
  }
  switch (what.op) {
    case Op::kProduct:
      return a * b;
    case Op::kMin:
      return std::min(a, b);
    case Op::kMax:
      return std::max(a, b);
    default:
      return a + b;
  }
}

}  // namespace

size_t BytesOf(DType dtype) {
  switch (dtype) {
    case DType::kI32:
    case DType::kF32:
      return 4;
    case DType::kI64:
    case DType::kF64:
      return 8;
    case DType::kU8:
    case DType::kI8:
    case DType::kBool:
      return 1;
    default:
      return 2;
  }
}

bool IsFloat(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 ||
         dtype == DType::kF64;
}

void Put(DType dtype, void* buffer, size_t i, double value) {
  char* at = static_cast<char*>(buffer) + i * BytesOf(dtype);
  const auto store = [at](auto typed) { std::memcpy(at, &typed, sizeof typed); };
  switch (dtype) {
    case DType::kF16:
      return store(kernels::F16FromFloat(static_cast<float>(value)));
    case DType::kBF16:
      return store(kernels::Bf16FromFloat(static_cast<float>(value)));
    case DType::kF32:
      return store(static_cast<float>(value));
    case DType::kF64:
      return store(value);
    default:
      // Little-endian two's complement: the low bytes are the value in every integer type.
      const auto whole = static_cast<int64_t>(value);
      std::memcpy(at, &whole, BytesOf(dtype));
  }
}

double Get(DType dtype, const void* buffer, size_t i) {
  const char* at = static_cast<const char*>(buffer) + i * BytesOf(dtype);
  switch (dtype) {
    case DType::kF16:
      return kernels::FloatFromF16(Load<uint16_t>(at));
    case DType::kBF16:
      return kernels::FloatFromBf16(Load<uint16_t>(at));
    case DType::kF32:
      return Load<float>(at);
    case DType::kF64:
      return Load<double>(at);
    case DType::kI8:
      return Load<int8_t>(at);
    case DType::kI16:
      return Load<int16_t>(at);
    case DType::kI32:
      return Load<int32_t>(at);
    case DType::kI64:
      return static_cast<double>(Load<int64_t>(at));
    case DType::kU16:
      return Load<uint16_t>(at);
    default:
      return Load<uint8_t>(at);
  }
}

double Reduced(const Reduction& what, const std::vector<double>& inputs) {
  const auto scaled = [&](double value, double factor) {
    return IsFloat(what.dtype) ? value * factor : std::trunc(value * factor);
  };
  double result = scaled(inputs[0], what.prescale);
  for (size_t k = 1; k < inputs.size(); ++k) {
    result = Combined(what, result, scaled(inputs[k], what.prescale));
  }
  if (what.op == Op::kAverage && what.postscale == 1) {
    const double average = result / what.divisor;
    return IsFloat(what.dtype) ? average : std::trunc(average);
  }
  const double divisor = what.op == Op::kAverage ? what.divisor : 1;
  return scaled(result, what.postscale / divisor);
}

bool Matches(const Reduction& what, const void* buffer, size_t i, double expected) {
  const double value = Get(what.dtype, buffer, i);
  if (what.op != Op::kAverage || !IsFloat(what.dtype)) {
    int64_t stored = 0;
    Put(what.dtype, &stored, 0, expected);
    return value == Get(what.dtype, &stored, 0);
  }
  const double digits = what.dtype == DType::kF64   ? 0x1p-50
                        : what.dtype == DType::kF32 ? 0x1p-22
                        : what.dtype == DType::kF16 ? 0x1p-10
                                                    : 0x1p-7;
  return std::abs(value - expected) <= digits * std::abs(expected);
}

}  // namespace muster::worker
