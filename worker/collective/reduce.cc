#include "worker/collective/reduce.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "common/check.h"

namespace muster::worker {
namespace {

struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

// What each stored type is computed in.
template <class T>
T Load(T value) {
  return value;
}
float Load(Half value) {
  return HalfToFloat(value.bits);
}
float Load(BFloat16 value) {
  return BFloat16ToFloat(value.bits);
}

template <class Stored, class Computed>
Stored Store(Computed value) {
  if constexpr (std::is_same_v<Stored, Half>) {
    return {FloatToHalf(value)};
  } else if constexpr (std::is_same_v<Stored, BFloat16>) {
    return {FloatToBFloat16(value)};
  } else {
    return static_cast<Stored>(value);
  }
}

// Unsigned arithmetic wraps by definition; through uint32 because two uint16 multiply as int.
template <class T>
T WrappingAdd(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Wide = std::common_type_t<std::make_unsigned_t<T>, uint32_t>;
    return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
  } else {
    return a + b;
  }
}
template <class T>
T WrappingMultiply(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using Wide = std::common_type_t<std::make_unsigned_t<T>, uint32_t>;
    return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
  } else {
    return a * b;
  }
}
template <class T>
T Smaller(T a, T b) {
  return a < b || a != a ? a : b;
}
template <class T>
T Larger(T a, T b) {
  return a > b || a != a ? a : b;
}

template <class Stored, class Combine>
void Loop(void* out, const void* a, const void* b, size_t count, Combine combine) {
  auto* to = static_cast<Stored*>(out);
  const auto* left = static_cast<const Stored*>(a);
  const auto* right = static_cast<const Stored*>(b);
  for (size_t i = 0; i < count; ++i) {
    to[i] = Store<Stored>(combine(Load(left[i]), Load(right[i])));
  }
}

template <class Stored>
void ReduceAs(Op op, void* out, const void* a, const void* b, size_t count) {
  using T = decltype(Load(Stored{}));
  switch (op) {
    case Op::kSum:
      return Loop<Stored>(out, a, b, count, WrappingAdd<T>);
    case Op::kProduct:
      return Loop<Stored>(out, a, b, count, WrappingMultiply<T>);
    case Op::kMin:
      return Loop<Stored>(out, a, b, count, Smaller<T>);
    case Op::kMax:
      return Loop<Stored>(out, a, b, count, Larger<T>);
    case Op::kAverage:
    case Op::kAdasum:
      break;
  }
  MUSTER_CHECK(false, "not a reduction of two buffers");
}

void ReduceBooleans(Op op, void* out, const void* a, const void* b, size_t count) {
  const bool all = op == Op::kMin || op == Op::kProduct;
  Loop<uint8_t>(out, a, b, count, [all](uint8_t x, uint8_t y) {
    return static_cast<uint8_t>(all ? (x != 0 && y != 0) : (x != 0 || y != 0));
  });
}

/// Calls `with` with a value of the type in which the dtype is stored.
template <class With>
void Dispatch(DType dtype, With with) {
  switch (dtype) {
    case DType::kU8:
      return with(uint8_t{});
    case DType::kI8:
      return with(int8_t{});
    case DType::kU16:
      return with(uint16_t{});
    case DType::kI16:
      return with(int16_t{});
    case DType::kI32:
      return with(int32_t{});
    case DType::kI64:
      return with(int64_t{});
    case DType::kF16:
      return with(Half{});
    case DType::kBF16:
      return with(BFloat16{});
    case DType::kF32:
      return with(float{});
    case DType::kF64:
      return with(double{});
    case DType::kBool:
      break;
  }
  MUSTER_CHECK(false, "booleans are not computed with");
}

// The conversion of a double that does not fit is undefined in C++.
template <class T>
T Truncate(double value) {
  if (std::isnan(value)) {
    return 0;
  }
  if (value <= static_cast<double>(std::numeric_limits<T>::min())) {
    return std::numeric_limits<T>::min();
  }
  if (value >= static_cast<double>(std::numeric_limits<T>::max())) {
    return std::numeric_limits<T>::max();
  }
  return static_cast<T>(value);
}

template <class Stored>
void ScaleAs(void* out, const void* in, size_t count, double factor) {
  auto* to = static_cast<Stored*>(out);
  const auto* from = static_cast<const Stored*>(in);
  for (size_t i = 0; i < count; ++i) {
    const double value = static_cast<double>(Load(from[i])) * factor;
    if constexpr (std::is_integral_v<Stored>) {
      to[i] = Truncate<Stored>(value);
    } else {
      to[i] = Store<Stored>(static_cast<decltype(Load(Stored{}))>(value));
    }
  }
}

}  // namespace

// ---------------------------------------------------------------- 16-bit floats

float HalfToFloat(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1Fu;
  const uint32_t mantissa = half & 0x3FFu;
  if (exponent == 0x1F) {
    return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  }
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  }
  // Subnormal: mantissa units of 2^-24, which a float holds exactly.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return sign == 0 ? magnitude : -magnitude;
}

uint16_t FloatToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {
    return static_cast<uint16_t>(sign | 0x7E00u);
  }
  if (magnitude >= 0x477FF000u) {  // 65520: rounds to infinity.
    return static_cast<uint16_t>(sign | 0x7C00u);
  }
  if (magnitude < 0x38800000u) {
    // Below 2^-14. Adding 0.5 aligns units of 2^-24 with the float's last bit, so that the
    // processor rounds to nearest even.
    const float aligned = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(aligned) - 0x3F000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  const uint32_t rounded = magnitude - (112u << 23) + 0xFFFu + odd;
  return static_cast<uint16_t>(sign | (rounded >> 13));
}

float BFloat16ToFloat(uint16_t half) {
  return std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
}

uint16_t FloatToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {
    return static_cast<uint16_t>((bits >> 16) | 0x40u);
  }
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

void WidenFloats(DType dtype, float* out, const void* in, size_t count) {
  const auto* from = static_cast<const uint16_t*>(in);
  const auto convert = dtype == DType::kF16 ? HalfToFloat : BFloat16ToFloat;
  std::transform(from, from + count, out, convert);
}

void NarrowFloats(DType dtype, void* out, const float* in, size_t count) {
  const auto convert = dtype == DType::kF16 ? FloatToHalf : FloatToBFloat16;
  std::transform(in, in + count, static_cast<uint16_t*>(out), convert);
}

// ---------------------------------------------------------------- whole buffers

void Reduce(DType dtype, Op op, void* out, const void* a, const void* b, size_t count) {
  if (dtype == DType::kBool) {
    return ReduceBooleans(op, out, a, b, count);
  }
  Dispatch(dtype, [&](auto stored) { ReduceAs<decltype(stored)>(op, out, a, b, count); });
}

void Scale(DType dtype, void* out, const void* in, size_t count, double factor) {
  Dispatch(dtype, [&](auto stored) { ScaleAs<decltype(stored)>(out, in, count, factor); });
}

void WidenIntegers(DType dtype, int64_t* out, const void* in, size_t count) {
  Dispatch(dtype, [&](auto stored) {
    using T = decltype(stored);
    if constexpr (std::is_integral_v<T>) {
      std::copy_n(static_cast<const T*>(in), count, out);
    } else {
      MUSTER_CHECK(false, "an integer dtype");
    }
  });
}

void NarrowIntegers(DType dtype, void* out, const int64_t* in, size_t count) {
  Dispatch(dtype, [&](auto stored) {
    using T = decltype(stored);
    if constexpr (std::is_integral_v<T>) {
      std::transform(in, in + count, static_cast<T*>(out), [](int64_t x) {
        return static_cast<T>(
            std::clamp<int64_t>(x, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
      });
    } else {
      MUSTER_CHECK(false, "an integer dtype");
    }
  });
}

}  // namespace muster::worker
