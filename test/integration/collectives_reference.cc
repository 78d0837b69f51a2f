#include "collectives_reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <sstream>

namespace muster::test {
namespace {

using Wide = __int128;
// NOLINTNEXTLINE(google-runtime-int): the widest float there is.
using Real = long double;

struct FloatLayout {
  int mantissa_bits;  // Without the leading one.
  int exponent_min;   // Of the smallest normal value.
};

constexpr FloatLayout kHalf{10, -14};
constexpr FloatLayout kBrain{7, -126};

FloatLayout LayoutOf(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return kHalf;
    case DType::kBF16:
      return kBrain;
    case DType::kF32:
      return {23, -126};
    default:
      return {52, -1022};
  }
}

// The 16 bits of a value that the layout can hold, or of infinity or NaN.
uint16_t Encode16(const FloatLayout& layout, Real value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const uint16_t infinity = ((1 << (15 - layout.mantissa_bits)) - 1) << layout.mantissa_bits;
  if (std::isnan(value)) {
    return sign | infinity | 1 << (layout.mantissa_bits - 1);
  }
  const Real size = std::fabs(value);
  if (std::isinf(size)) {
    return sign | infinity;
  }
  if (size == 0) {
    return sign;
  }
  const int exponent = std::max(std::ilogb(size), layout.exponent_min);
  // Rounding up to the next power of two carries into the exponent, as it should.
  const auto mantissa =
      static_cast<int64_t>(std::nearbyint(std::ldexp(size, layout.mantissa_bits - exponent)));
  const int64_t bits =
      (static_cast<int64_t>(exponent - layout.exponent_min) << layout.mantissa_bits) + mantissa;
  return sign | static_cast<uint16_t>(std::min<int64_t>(bits, infinity));
}

Real Decode16(const FloatLayout& layout, uint16_t bits) {
  const int field = (bits & 0x7FFF) >> layout.mantissa_bits;
  const int fraction = bits & ((1 << layout.mantissa_bits) - 1);
  const Real sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (field == (1 << (15 - layout.mantissa_bits)) - 1) {
    return fraction != 0 ? std::numeric_limits<Real>::quiet_NaN()
                         : sign * std::numeric_limits<Real>::infinity();
  }
  const int implied = field == 0 ? 0 : 1 << layout.mantissa_bits;
  return sign * std::ldexp(static_cast<Real>(fraction + implied),
                           layout.exponent_min + std::max(field, 1) - 1 - layout.mantissa_bits);
}

int BitsOf(DType dtype) {
  return static_cast<int>(8 * SizeOf(dtype));
}
bool IsSigned(DType dtype) {
  return dtype == DType::kI8 || dtype == DType::kI16 || dtype == DType::kI32 ||
         dtype == DType::kI64;
}

Wide Wrap(DType dtype, Wide value) {
  const int bits = BitsOf(dtype);
  const Wide modulus = static_cast<Wide>(1) << bits;
  Wide low = value & (modulus - 1);
  if (IsSigned(dtype) && low >= modulus / 2) {
    low -= modulus;
  }
  return low;
}

Wide Saturate(DType dtype, Real value) {
  const Real half = std::ldexp(static_cast<Real>(1), BitsOf(dtype) - 1);
  const Real low = IsSigned(dtype) ? -half : 0;
  const Real high = IsSigned(dtype) ? half - 1 : 2 * half - 1;
  return static_cast<Wide>(std::clamp(std::trunc(value), low, high));
}

void StoreInteger(DType dtype, Wide value, void* to) {
  const auto bits = static_cast<uint64_t>(value);  // Little-endian: the low bytes come first.
  std::memcpy(to, &bits, SizeOf(dtype));
}

Wide LoadInteger(DType dtype, const void* from) {
  uint64_t bits = 0;
  std::memcpy(&bits, from, SizeOf(dtype));
  return Wrap(dtype, static_cast<Wide>(bits));
}

// What becomes of a value in the type: infinity, if it is too large.
Real Rounded(DType dtype, Real value) {
  uint64_t stored = 0;
  StoreFloat(dtype, value, &stored);
  return LoadFloat(dtype, &stored);
}

// One element of one rank.
class Generator {
 public:
  Generator(const Source& source, int rank)
      : source_(source),
        rank_(source.values == Values::kSame ? 0 : static_cast<uint64_t>(rank)),
        small_(source.values == Values::kExact || source.values == Values::kConstant) {}

  Wide Integer(int64_t index) const {
    const uint64_t chance = Chance(index);
    if (source_.dtype == DType::kBool) {
      return static_cast<Wide>(chance & 1);
    }
    if (!small_) {
      return Wrap(source_.dtype, static_cast<Wide>(chance));
    }
    return IsSigned(source_.dtype) ? Small(chance) : static_cast<Wide>(chance % 9);
  }

  Real Float(int64_t index) const {
    const uint64_t chance = Chance(index);
    if (small_) {
      return Small(chance);
    }
    const Real unit = static_cast<Real>(chance >> 11) * 0x1p-53L;
    const Real value =
        source_.op == Op::kProduct ? (chance & 1 ? -0.5L : 0.5L) - unit : (unit - 0.5L) * 2000;
    return Rounded(source_.dtype, value);
  }

 private:
  uint64_t Chance(int64_t index) const {
    return Mix(source_.seed,
               rank_,
               source_.values == Values::kConstant ? 0 : static_cast<uint64_t>(index));
  }
  int Small(uint64_t chance) const {
    if (source_.op == Op::kProduct) {
      return static_cast<int>(chance % 2 + 1) * (chance & 4 ? -1 : 1);
    }
    return static_cast<int>(chance % 17) - 8;
  }

  const Source& source_;
  uint64_t rank_;
  bool small_;
};

struct Interval {
  Real low;
  Real high;
  Real value;
};

Real Epsilon(DType dtype) {
  return std::ldexp(static_cast<Real>(1), -LayoutOf(dtype).mantissa_bits - 1);
}

bool IsPowerOfTwo(double factor) {
  int exponent = 0;
  return std::frexp(factor, &exponent) == 0.5;
}

// A float result may differ from the exact one by the roundings of the accumulator (at least f32)
// and by one of the stored type.
Interval ReduceFloat(const Expectation& expected, int64_t index) {
  const Source& source = expected.source;
  const DType dtype = source.dtype;
  Real result = 0;
  Real sum_of_sizes = 0;
  bool first = true;
  for (const int rank : expected.ranks) {
    const Real value = Generator(source, rank).Float(index) * expected.prescale;
    sum_of_sizes += std::fabs(value);
    if (first) {
      result = value;
    } else if (source.op == Op::kMin) {
      result = std::min(result, value);
    } else if (source.op == Op::kMax) {
      result = std::max(result, value);
    } else if (source.op == Op::kProduct) {
      result *= value;
    } else {
      result += value;
    }
    first = false;
  }
  const bool averages = source.op == Op::kAverage;
  const Real factor = expected.postscale / static_cast<Real>(averages ? expected.divisor : 1);
  result *= factor;
  const bool sums = averages || source.op == Op::kSum;
  const bool small = source.values == Values::kExact || source.values == Values::kConstant;
  const bool scales_exactly =
      IsPowerOfTwo(expected.prescale) && IsPowerOfTwo(expected.postscale) && !averages;
  if (scales_exactly && (small || !(sums || source.op == Op::kProduct))) {
    const Real rounded = Rounded(dtype, result);
    return {rounded, rounded, rounded};
  }
  const Real accumulated = std::min(Epsilon(dtype), Epsilon(DType::kF32));
  const Real terms = static_cast<Real>(2 * expected.ranks.size() + 4);
  const Real scale = sums ? sum_of_sizes * std::fabs(factor) : std::fabs(result);
  const FloatLayout layout = LayoutOf(dtype);
  const Real tiny = std::ldexp(static_cast<Real>(1), layout.exponent_min - layout.mantissa_bits);
  const Real slack =
      terms * accumulated * scale + 1.01L * Epsilon(dtype) * std::fabs(result) + tiny;
  return {Rounded(dtype, result - slack), Rounded(dtype, result + slack), result};
}

// An average is divided exactly, truncating toward zero; factors are applied in double, so that a
// product which is nearly whole may fall to either side.
Interval ReduceInteger(const Expectation& expected, int64_t index) {
  const Source& source = expected.source;
  const DType dtype = source.dtype;
  const bool averages = source.op == Op::kAverage;
  Wide result = 0;
  bool first = true;
  for (const int rank : expected.ranks) {
    Wide value = Generator(source, rank).Integer(index);
    if (expected.prescale != 1) {
      value = Saturate(averages ? DType::kI64 : dtype,
                       static_cast<Real>(static_cast<double>(value) * expected.prescale));
    }
    if (first) {
      result = value;
    } else if (source.op == Op::kMin) {
      result = std::min(result, value);
    } else if (source.op == Op::kMax) {
      result = std::max(result, value);
    } else if (source.op == Op::kProduct) {
      result = Wrap(dtype, result * value);
    } else {
      result = averages ? result + value : Wrap(dtype, result + value);
    }
    first = false;
  }
  if (expected.postscale == 1) {
    const auto whole = static_cast<Real>(averages ? result / expected.divisor : result);
    return {whole, whole, whole};
  }
  const Real exact = static_cast<Real>(result) * expected.postscale /
                     static_cast<Real>(averages ? expected.divisor : 1);
  const Real slack = std::fabs(exact) * 0x1p-50L;
  const auto a = static_cast<Real>(Saturate(dtype, exact - slack));
  const auto b = static_cast<Real>(Saturate(dtype, exact + slack));
  return {std::min(a, b), std::max(a, b), static_cast<Real>(Saturate(dtype, exact))};
}

// Sum and maximum of booleans are OR, product and minimum AND.
Interval ReduceBool(const Expectation& expected, int64_t index) {
  const Source& source = expected.source;
  const bool any = source.op == Op::kSum || source.op == Op::kMax;
  bool result = !any;
  for (const int rank : expected.ranks) {
    const bool value = Generator(source, rank).Integer(index) != 0;
    result = any ? result || value : result && value;
  }
  return {static_cast<Real>(result), static_cast<Real>(result), static_cast<Real>(result)};
}

Real LoadAny(DType dtype, const void* from) {
  return IsFloat(dtype) ? LoadFloat(dtype, from) : static_cast<Real>(LoadInteger(dtype, from));
}

std::string Difference(int64_t index, Real expected, Real got) {
  std::ostringstream text;
  text.precision(21);
  text << "index " << index << ": expected " << expected << ", got " << got;
  return text.str();
}

std::vector<Real> Combine(const std::vector<Real>& a, const std::vector<Real>& b) {
  Real aa = 0;
  Real bb = 0;
  Real ab = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    aa += a[i] * a[i];
    bb += b[i] * b[i];
    ab += a[i] * b[i];
  }
  const Real of_a = aa == 0 ? 1 : 1 - ab / (2 * aa);
  const Real of_b = bb == 0 ? 1 : 1 - ab / (2 * bb);
  std::vector<Real> out(a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    out[i] = of_a * a[i] + of_b * b[i];
  }
  return out;
}

}  // namespace

size_t SizeOf(DType dtype) {
  static constexpr uint8_t kSizes[] = {1, 1, 2, 2, 4, 8, 2, 2, 4, 8, 1};
  return kSizes[static_cast<size_t>(dtype)];
}

const char* NameOf(DType dtype) {
  static constexpr const char* kNames[] = {
      "u8", "i8", "u16", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", "bool"};
  return kNames[static_cast<size_t>(dtype)];
}

const char* NameOf(Op op) {
  static constexpr const char* kNames[] = {"average", "sum", "adasum", "min", "max", "product"};
  return kNames[static_cast<size_t>(op)];
}

bool IsFloat(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 ||
         dtype == DType::kF64;
}

const std::vector<DType>& AllTypes() {
  static const std::vector<DType> types{DType::kU8,
                                        DType::kI8,
                                        DType::kU16,
                                        DType::kI16,
                                        DType::kI32,
                                        DType::kI64,
                                        DType::kF16,
                                        DType::kBF16,
                                        DType::kF32,
                                        DType::kF64,
                                        DType::kBool};
  return types;
}

int64_t CountOf(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t dimension : shape) {
    count *= dimension;
  }
  return count;
}

uint64_t Mix(uint64_t seed, uint64_t a, uint64_t b) {
  uint64_t x = seed + a * 0x9E3779B97F4A7C15U + (b + 1) * 0xD1B54A32D192ED03U;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

void StoreFloat(DType dtype, long double value, void* to) {
  if (dtype == DType::kF64) {
    const auto narrow = static_cast<double>(value);
    std::memcpy(to, &narrow, sizeof narrow);
  } else if (dtype == DType::kF32) {
    const auto narrow = static_cast<float>(value);
    std::memcpy(to, &narrow, sizeof narrow);
  } else {
    const uint16_t narrow = Encode16(dtype == DType::kF16 ? kHalf : kBrain, value);
    std::memcpy(to, &narrow, sizeof narrow);
  }
}

long double LoadFloat(DType dtype, const void* from) {
  if (dtype == DType::kF64) {
    double value = 0;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  if (dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  uint16_t value = 0;
  std::memcpy(&value, from, sizeof value);
  return Decode16(dtype == DType::kF16 ? kHalf : kBrain, value);
}

void Fill(const Source& source, int rank, int64_t first, int64_t count, void* to) {
  const Generator generator(source, rank);
  const size_t width = SizeOf(source.dtype);
  auto* bytes = static_cast<unsigned char*>(to);
  for (int64_t i = 0; i < count; ++i) {
    if (source.values == Values::kConstant && i > 0) {
      // Doubles what is there.
      const auto have = static_cast<size_t>(i) * width;
      const size_t rest = static_cast<size_t>(count) * width - have;
      std::memcpy(bytes + have, bytes, std::min(have, rest));
      i += static_cast<int64_t>(std::min(have, rest) / width) - 1;
      continue;
    }
    unsigned char* element = bytes + static_cast<size_t>(i) * width;
    if (IsFloat(source.dtype)) {
      StoreFloat(source.dtype, generator.Float(first + i), element);
    } else {
      StoreInteger(source.dtype, generator.Integer(first + i), element);
    }
  }
}

std::optional<std::string> CompareReduced(
    const Expectation& expected, int64_t first, int64_t count, const void* got, int64_t sample) {
  const DType dtype = expected.source.dtype;
  const auto* bytes = static_cast<const unsigned char*>(got);
  const int64_t ends = sample / 4;
  const int64_t step = count <= sample ? 1 : std::max<int64_t>(1, count / (sample / 2) - 1);
  for (int64_t i = 0; i < count;
       i += (i < ends || i >= count - ends) ? 1 : std::min(step, count - ends - i)) {
    const Interval right = dtype == DType::kBool ? ReduceBool(expected, first + i)
                           : IsFloat(dtype)      ? ReduceFloat(expected, first + i)
                                                 : ReduceInteger(expected, first + i);
    const Real value = LoadAny(dtype, bytes + static_cast<size_t>(i) * SizeOf(dtype));
    if (!(value >= right.low && value <= right.high)) {
      return Difference(i, right.value, value);
    }
  }
  return std::nullopt;
}

std::optional<std::string> CompareAdasum(const Expectation& expected,
                                         int64_t count,
                                         const void* got) {
  const Source& source = expected.source;
  std::vector<std::vector<Real>> vectors;
  for (const int rank : expected.ranks) {
    const Generator generator(source, rank);
    std::vector<Real>& vector = vectors.emplace_back(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      vector[static_cast<size_t>(i)] = generator.Float(i);
    }
    if (source.values == Values::kSame) {
      break;  // Equal vectors combine to themselves.
    }
  }
  while (vectors.size() > 1) {
    for (size_t i = 0; i + 1 < vectors.size(); i += 2) {
      vectors[i / 2] = Combine(vectors[i], vectors[i + 1]);
    }
    vectors.resize(vectors.size() / 2);
  }
  Real largest = 0;
  for (const Real value : vectors[0]) {
    largest = std::max(largest, std::fabs(value));
  }
  // Every level rounds to the stored type.
  const Real slack = 32 * largest * std::max(Epsilon(source.dtype), static_cast<Real>(0x1p-52L));
  const auto* bytes = static_cast<const unsigned char*>(got);
  for (int64_t i = 0; i < count; ++i) {
    const Real value =
        LoadFloat(source.dtype, bytes + static_cast<size_t>(i) * SizeOf(source.dtype));
    if (!(std::fabs(value - vectors[0][static_cast<size_t>(i)]) <= slack)) {
      return Difference(i, vectors[0][static_cast<size_t>(i)], value);
    }
  }
  return std::nullopt;
}

std::optional<std::string> CompareCopied(
    const Source& source, int rank, int64_t first, int64_t count, const void* got) {
  const size_t width = SizeOf(source.dtype);
  std::vector<unsigned char> expected(static_cast<size_t>(count) * width);
  Fill(source, rank, first, count, expected.data());
  const auto* bytes = static_cast<const unsigned char*>(got);
  if (count == 0 || std::memcmp(expected.data(), bytes, expected.size()) == 0) {
    return std::nullopt;
  }
  size_t index = 0;
  while (std::memcmp(&expected[index * width], bytes + index * width, width) == 0) {
    ++index;
  }
  return Difference(static_cast<int64_t>(index),
                    LoadAny(source.dtype, &expected[index * width]),
                    LoadAny(source.dtype, bytes + index * width)) +
         " of the data of rank " + std::to_string(rank);
}

}  // namespace muster::test
