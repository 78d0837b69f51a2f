#pragma once

// What a reduction has to give, one element at a time in plain C++, for the tests of kernels/: the
// table in reduce.h written a second time, in the simplest way. And buffers that notice writes
// beside them.
//
// Not thread-safe; a Random per test.

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "kernels/half.h"
#include "kernels/reduce.h"

namespace muster::kernels::test {

__extension__ typedef __int128 Int128;

template <class Bits, int kKind>
struct Pattern {
  Bits bits;
};
using Half = Pattern<uint16_t, 0>;
using BFloat = Pattern<uint16_t, 1>;
using Byte = Pattern<uint8_t, 2>;  // A bool, in whatever byte.

inline float Load(Half value) {
  return FloatFromF16(value.bits);
}
inline float Load(BFloat value) {
  return FloatFromBf16(value.bits);
}
inline bool Load(Byte value) {
  return value.bits != 0;
}
template <class T>
T Load(T value) {
  return value;
}

template <class T>
T Save(float value) {
  if constexpr (std::is_same_v<T, Half>) {
    return {F16FromFloat(value)};
  } else if constexpr (std::is_same_v<T, BFloat>) {
    return {Bf16FromFloat(value)};
  } else {
    return value;
  }
}

/// Calls `visit` with a zero of each stored type beside its Element.
template <class Visit>
void ForEachType(Visit visit) {
  visit(Element::kU8, uint8_t{});
  visit(Element::kI8, int8_t{});
  visit(Element::kU16, uint16_t{});
  visit(Element::kI16, int16_t{});
  visit(Element::kI32, int32_t{});
  visit(Element::kI64, int64_t{});
  visit(Element::kF16, Half{});
  visit(Element::kBF16, BFloat{});
  visit(Element::kF32, float{});
  visit(Element::kF64, double{});
  visit(Element::kBool, Byte{});
}

template <class T>
T Truncated(double value) {
  if (std::isnan(value)) {
    return 0;
  }
  const int digits = static_cast<int>(8 * sizeof(T)) - (static_cast<T>(-1) < 0 ? 1 : 0);
  const T max = static_cast<T>(~(static_cast<T>(-1) < 0 ? static_cast<T>(1) << digits : T{0}));
  const T min = static_cast<T>(~max);
  if (value >= std::ldexp(1.0, digits)) {
    return max;
  }
  return value <= static_cast<double>(min) ? min : static_cast<T>(value);
}

template <class T>
T ModelCombine(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::kMin:
      return std::isnan(static_cast<double>(a)) || a < b ? a : b;
    case ReduceOp::kMax:
      return std::isnan(static_cast<double>(a)) || a > b ? a : b;
    case ReduceOp::kProduct:
      if constexpr (std::is_floating_point_v<T>) {
        return a * b;
      } else {
        return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
      }
    default:
      if constexpr (std::is_floating_point_v<T>) {
        return a + b;
      } else {
        return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
      }
  }
}

template <class T>
T ModelFloat(const ReducePlan& plan, const std::vector<T>& values) {
  using Lane = decltype(Load(T{}));
  const auto pre = static_cast<Lane>(plan.prescale);
  Lane result = Load(values[0]) * pre;
  for (size_t k = 1; k < values.size(); ++k) {
    result = ModelCombine<Lane>(plan.op, result, Load(values[k]) * pre);
  }
  const double post =
      plan.op == ReduceOp::kAverage ? plan.postscale / plan.divisor : plan.postscale;
  result *= static_cast<Lane>(post);
  if constexpr (std::is_same_v<T, double>) {
    return result;
  } else {
    return Save<T>(result);
  }
}

template <class T, class Sum>
T ModelAverage(const ReducePlan& plan, const std::vector<T>& values) {
  Int128 sum = 0;
  for (const T value : values) {
    sum += plan.prescale == 1 ? static_cast<Sum>(value)
                              : Truncated<Sum>(static_cast<double>(value) * plan.prescale);
  }
  if (plan.postscale != 1) {
    return Truncated<T>(static_cast<double>(sum) * plan.postscale / plan.divisor);
  }
  sum /= plan.divisor;
  const Int128 low = std::numeric_limits<T>::min();
  const Int128 high = std::numeric_limits<T>::max();
  return static_cast<T>(sum < low ? low : sum > high ? high : sum);
}

template <class T>
T ModelInteger(const ReducePlan& plan, const std::vector<T>& values) {
  const auto scaled = [](T value, double factor) {
    return factor == 1 ? value : Truncated<T>(static_cast<double>(value) * factor);
  };
  T result = scaled(values[0], plan.prescale);
  for (size_t k = 1; k < values.size(); ++k) {
    result = ModelCombine<T>(plan.op, result, scaled(values[k], plan.prescale));
  }
  return scaled(result, plan.postscale);
}

inline Byte ModelBool(const ReducePlan& plan, const std::vector<Byte>& values) {
  const bool all = plan.op == ReduceOp::kMin || plan.op == ReduceOp::kProduct;
  bool result = all;
  for (const Byte value : values) {
    const bool bit = Load(value) && plan.prescale != 0;
    result = all ? result && bit : result || bit;
  }
  return {static_cast<uint8_t>(result && plan.postscale != 0 ? 1 : 0)};
}

/// One element of a reduction.
template <class T>
T Model(const ReducePlan& plan, const std::vector<T>& values) {
  if constexpr (std::is_same_v<T, Byte>) {
    return ModelBool(plan, values);
  } else if constexpr (std::is_integral_v<T>) {
    if (plan.op != ReduceOp::kAverage) {
      return ModelInteger(plan, values);
    }
    return ModelAverage<T, std::conditional_t<sizeof(T) == 8, Int128, int64_t>>(plan, values);
  } else {
    return ModelFloat(plan, values);
  }
}

/// The bits are equal, or both are NaN: whose payload an operation of two NaNs keeps is free.
template <class T>
bool Same(T a, T b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0 ||
         (std::isnan(static_cast<double>(Load(a))) && std::isnan(static_cast<double>(Load(b))));
}

using Random = std::mt19937_64;

/// Of any magnitude and any special value: random bits.
template <class T>
T AnyValue(Random& random) {
  const uint64_t bits = random();
  if constexpr (std::is_same_v<T, Byte>) {
    return {static_cast<uint8_t>(bits % 3 == 0 ? 0 : bits >> 8)};
  } else {
    T value;
    std::memcpy(&value, &bits, sizeof(T));
    return value;
  }
}

/// Near enough to each other that sums and products of some mean something; integers are any.
template <class T>
T TameValue(Random& random) {
  const double value = static_cast<double>(random() % 4001) / 1000 - 2;
  if constexpr (std::is_same_v<T, double>) {
    return value;
  } else if constexpr (std::is_integral_v<T> || std::is_same_v<T, Byte>) {
    return AnyValue<T>(random);
  } else {
    return Save<T>(static_cast<float>(value));
  }
}

/// Elements at an offset from an aligned address, with bytes before and behind that must stay.
template <class T>
class Buffer {
 public:
  Buffer(size_t count, size_t offset)
      : count_(count),
        start_(kGuard + offset),
        bytes_(start_ + count * sizeof(T) + kGuard, kMark) {}

  uint8_t* Data() { return bytes_.data() + start_; }
  T At(size_t index) const {
    T value;
    std::memcpy(&value, bytes_.data() + start_ + index * sizeof(T), sizeof(T));
    return value;
  }
  void Set(size_t index, T value) { std::memcpy(Data() + index * sizeof(T), &value, sizeof(T)); }

  bool GuardsHold() const {
    for (size_t i = 0; i < bytes_.size(); ++i) {
      if ((i < start_ || i >= start_ + count_ * sizeof(T)) && bytes_[i] != kMark) {
        return false;
      }
    }
    return true;
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr uint8_t kMark = 0xA5;
  size_t count_;
  size_t start_;
  std::vector<uint8_t> bytes_;
};

}  // namespace muster::kernels::test
