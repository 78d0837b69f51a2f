#include "kernels/scale.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernels/half.h"

namespace muster::kernels {
namespace {

// The bounds are exact powers of two in double; max() itself is not for 64 bits, hence the "+ 1"
// by way of doubling half of it.
template <class T>
T Truncate(double product) {
  constexpr double kLow = static_cast<double>(std::numeric_limits<T>::min());
  constexpr double kEnd = static_cast<double>(std::numeric_limits<T>::max() / 2 + 1) * 2.0;
  if (std::isnan(product)) {
    return 0;
  }
  if (product <= kLow) {
    return std::numeric_limits<T>::min();
  }
  if (product >= kEnd) {
    return std::numeric_limits<T>::max();
  }
  return static_cast<T>(product);
}

template <class T>
void ScaleIntegers(const T* in, T* out, size_t count, double factor) {
  for (size_t i = 0; i < count; ++i) {
    out[i] = Truncate<T>(static_cast<double>(in[i]) * factor);
  }
}

template <class T>
void ScaleFloats(const T* in, T* out, size_t count, T factor) {
  for (size_t i = 0; i < count; ++i) {
    out[i] = in[i] * factor;
  }
}

template <float (*ToFloat)(uint16_t), uint16_t (*FromFloat)(float)>
void ScaleHalves(const uint16_t* in, uint16_t* out, size_t count, float factor) {
  for (size_t i = 0; i < count; ++i) {
    out[i] = FromFloat(ToFloat(in[i]) * factor);
  }
}

// Bytes, not bool: a bool that is neither 0 nor 1 is undefined to read as one.
void ScaleBools(const uint8_t* in, uint8_t* out, size_t count, double factor) {
  const bool keep = factor != 0;
  for (size_t i = 0; i < count; ++i) {
    out[i] = (in[i] != 0 && keep) ? 1 : 0;
  }
}

template <class T>
const T* As(const void* data) {
  return static_cast<const T*>(data);
}
template <class T>
T* As(void* data) {
  return static_cast<T*>(data);
}

}  // namespace

size_t SizeOf(Element type) {
  switch (type) {
    case Element::kU8:
    case Element::kI8:
    case Element::kBool:
      return 1;
    case Element::kU16:
    case Element::kI16:
    case Element::kF16:
    case Element::kBF16:
      return 2;
    case Element::kI32:
    case Element::kF32:
      return 4;
    case Element::kI64:
    case Element::kF64:
      return 8;
  }
  return 0;
}

void Scale(const void* in, void* out, Element type, size_t count, double factor) {
  if (factor == 1) {
    if (in != out && count > 0) {
      std::memcpy(out, in, count * SizeOf(type));
    }
    return;
  }
  const auto single = static_cast<float>(factor);
  switch (type) {
    case Element::kU8:
      return ScaleIntegers(As<uint8_t>(in), As<uint8_t>(out), count, factor);
    case Element::kI8:
      return ScaleIntegers(As<int8_t>(in), As<int8_t>(out), count, factor);
    case Element::kU16:
      return ScaleIntegers(As<uint16_t>(in), As<uint16_t>(out), count, factor);
    case Element::kI16:
      return ScaleIntegers(As<int16_t>(in), As<int16_t>(out), count, factor);
    case Element::kI32:
      return ScaleIntegers(As<int32_t>(in), As<int32_t>(out), count, factor);
    case Element::kI64:
      return ScaleIntegers(As<int64_t>(in), As<int64_t>(out), count, factor);
    case Element::kF16:
      return ScaleHalves<FloatFromF16, F16FromFloat>(
          As<uint16_t>(in), As<uint16_t>(out), count, single);
    case Element::kBF16:
      return ScaleHalves<FloatFromBf16, Bf16FromFloat>(
          As<uint16_t>(in), As<uint16_t>(out), count, single);
    case Element::kF32:
      return ScaleFloats(As<float>(in), As<float>(out), count, single);
    case Element::kF64:
      return ScaleFloats(As<double>(in), As<double>(out), count, factor);
    case Element::kBool:
      return ScaleBools(As<uint8_t>(in), As<uint8_t>(out), count, factor);
  }
}

}  // namespace muster::kernels
