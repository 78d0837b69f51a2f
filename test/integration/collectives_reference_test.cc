#include "collectives_reference.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace muster::test {
namespace {

template <class T>
std::vector<T> Elements(const Source& source, int rank, int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  Fill(source, rank, 0, count, values.data());
  return values;
}

uint16_t Stored(DType dtype, long double value) {
  uint16_t bits = 0;
  StoreFloat(dtype, value, &bits);
  return bits;
}

// What three ranks should get, by the plainest code for this one type.
template <class T>
std::vector<T> Reduced(const Source& source, T (*combine)(T, T)) {
  std::vector<T> result = Elements<T>(source, 0, 100);
  for (const int rank : {1, 2}) {
    const std::vector<T> other = Elements<T>(source, rank, 100);
    for (size_t i = 0; i < result.size(); ++i) {
      result[i] = combine(result[i], other[i]);
    }
  }
  return result;
}

template <class T>
void CheckJudgement(const Source& source, T (*combine)(T, T)) {
  const Expectation expected{source, {0, 1, 2}, 3, 1, 1};
  std::vector<T> right = Reduced<T>(source, combine);
  CHECK_FALSE(CompareReduced(expected, 0, 100, right.data(), 1000));
  CHECK_FALSE(CompareReduced(expected, 40, 60, &right[40], 1000));
  for (const size_t index : {0, 57, 99}) {
    std::vector<T> wrong = right;
    wrong[index] = static_cast<T>(wrong[index] + 1);
    const auto found = CompareReduced(expected, 0, 100, wrong.data(), 1000);
    REQUIRE(found);
    CHECK(found->find("index " + std::to_string(index) + ":") == 0);
  }
}

}  // namespace

TEST_CASE("reference floats of 16 bits are what their definitions say") {
  CHECK(Stored(DType::kF16, 1) == 0x3C00);
  CHECK(Stored(DType::kF16, -2) == 0xC000);
  CHECK(Stored(DType::kF16, 65504) == 0x7BFF);
  CHECK(Stored(DType::kF16, 65520) == 0x7C00);  // Half way to the next: to infinity.
  CHECK(Stored(DType::kF16, 65519) == 0x7BFF);
  CHECK(Stored(DType::kF16, 0x1p-24L) == 1);
  CHECK(Stored(DType::kF16, 0x1p-25L) == 0);  // A tie, to even.
  CHECK(Stored(DType::kF16, 0x1.8p-24L) == 2);
  CHECK(Stored(DType::kF16, -0.0L) == 0x8000);
  CHECK(Stored(DType::kBF16, 1) == 0x3F80);
  CHECK(Stored(DType::kBF16, 1 + 0x1p-8L) == 0x3F80);
  CHECK(Stored(DType::kBF16, 1 + 0x1.8p-7L) == 0x3F82);
  CHECK(std::isnan(LoadFloat(DType::kF16, "\x01\x7E")));
}

TEST_CASE("reference floats of 16 bits survive being read and stored") {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
      const auto pattern = static_cast<uint16_t>(bits);
      const long double value = LoadFloat(dtype, &pattern);
      if (!std::isnan(value)) {
        REQUIRE(Stored(dtype, value) == pattern);
      } else {
        REQUIRE(std::isnan(LoadFloat(dtype, &pattern)));
      }
    }
  }
}

TEST_CASE("reference data does not depend on how it is cut") {
  for (const DType dtype : AllTypes()) {
    for (const Values values : {Values::kExact, Values::kWide, Values::kConstant, Values::kSame}) {
      const Source source{dtype, Op::kSum, values, 7};
      const size_t width = SizeOf(dtype);
      std::vector<unsigned char> whole(1000 * width);
      std::vector<unsigned char> part(300 * width);
      Fill(source, 2, 0, 1000, whole.data());
      Fill(source, 2, 123, 300, part.data());
      CHECK(std::memcmp(part.data(), &whole[123 * width], part.size()) == 0);
      Fill(source, 1, 123, 300, part.data());
      const bool same = std::memcmp(part.data(), &whole[123 * width], part.size()) == 0;
      // Two ranks may have the same of few small constants.
      CHECK((same == (values == Values::kSame) || values == Values::kConstant));
    }
  }
}

TEST_CASE("reference judges reductions of integers") {
  for (const Values values : {Values::kExact, Values::kWide}) {
    CheckJudgement<uint8_t>({DType::kU8, Op::kSum, values, 1},
                            [](uint8_t a, uint8_t b) { return static_cast<uint8_t>(a + b); });
    CheckJudgement<int16_t>({DType::kI16, Op::kProduct, values, 2}, [](int16_t a, int16_t b) {
      return static_cast<int16_t>(static_cast<uint32_t>(a) * static_cast<uint32_t>(b));
    });
    CheckJudgement<int64_t>({DType::kI64, Op::kSum, values, 3}, [](int64_t a, int64_t b) {
      return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    });
    CheckJudgement<int32_t>({DType::kI32, Op::kMin, values, 4},
                            [](int32_t a, int32_t b) { return std::min(a, b); });
  }
}

TEST_CASE("reference judges averages and factors of integers") {
  const Source source{DType::kI32, Op::kAverage, Values::kExact, 5};
  std::vector<int32_t> sums = Reduced<int32_t>(source, [](int32_t a, int32_t b) { return a + b; });
  std::vector<int32_t> averages = sums;
  for (int32_t& value : averages) {
    value /= 3;
  }
  CHECK_FALSE(CompareReduced({source, {0, 1, 2}, 3, 1, 1}, 0, 100, averages.data(), 1000));
  CHECK(CompareReduced({source, {0, 1, 2}, 4, 1, 1}, 0, 100, averages.data(), 1000));
  CHECK(CompareReduced({source, {0, 1}, 3, 1, 1}, 0, 100, averages.data(), 1000));
  for (int32_t& value : sums) {
    value = static_cast<int32_t>(static_cast<double>(value) * 0.5);
  }
  const Source sum{DType::kI32, Op::kSum, Values::kExact, 5};
  CHECK_FALSE(CompareReduced({sum, {0, 1, 2}, 3, 1, 0.5}, 0, 100, sums.data(), 1000));
  CHECK(CompareReduced({sum, {0, 1, 2}, 3, 0.5, 1}, 0, 100, sums.data(), 1000));
}

TEST_CASE("reference judges floats within their roundings and not beyond") {
  const Source source{DType::kF32, Op::kSum, Values::kWide, 6};
  const Expectation expected{source, {0, 1, 2}, 3, 1, 1};
  std::vector<float> sums = Reduced<float>(source, [](float a, float b) { return a + b; });
  CHECK_FALSE(CompareReduced(expected, 0, 100, sums.data(), 1000));
  sums[3] += 0.01F;
  CHECK(CompareReduced(expected, 0, 100, sums.data(), 1000));
  sums[3] = std::numeric_limits<float>::quiet_NaN();
  CHECK(CompareReduced(expected, 0, 100, sums.data(), 1000));
  CheckJudgement<double>({DType::kF64, Op::kMax, Values::kWide, 7},
                         [](double a, double b) { return std::max(a, b); });
  CheckJudgement<float>({DType::kF32, Op::kProduct, Values::kExact, 8},
                        [](float a, float b) { return a * b; });
}

TEST_CASE("reference expects infinity where a result is too large for its type") {
  const Source source{DType::kF16, Op::kSum, Values::kExact, 13};
  const Expectation expected{source, {0}, 1, 1, 100000};
  const std::vector<uint16_t> values = Elements<uint16_t>(source, 0, 100);
  std::vector<uint16_t> right(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    right[i] = Stored(DType::kF16, LoadFloat(DType::kF16, &values[i]) * 100000);
  }
  CHECK_FALSE(CompareReduced(expected, 0, 100, right.data(), 1000));
  for (uint16_t& value : right) {
    value = (value & 0x7FFF) == 0x7C00 ? value - 1 : value;
  }
  CHECK(CompareReduced(expected, 0, 100, right.data(), 1000));
}

TEST_CASE("reference looks at both ends of what it samples") {
  const Source source{DType::kF32, Op::kSum, Values::kExact, 9};
  const Expectation expected{source, {0}, 1, 1, 1};
  std::vector<float> values = Elements<float>(source, 0, 10001);
  CHECK_FALSE(CompareReduced(expected, 0, 10001, values.data(), 100));
  for (const size_t index : {size_t{0}, size_t{10000}}) {
    values[index] += 1;
    CHECK(CompareReduced(expected, 0, 10001, values.data(), 100));
    values[index] -= 1;
  }
}

TEST_CASE("reference judges Adasum") {
  const Source same{DType::kF64, Op::kAdasum, Values::kSame, 10};
  std::vector<double> values = Elements<double>(same, 0, 50);
  CHECK_FALSE(CompareAdasum({same, {0, 1, 2}, 3, 1, 1}, 50, values.data()));
  const Source wide{DType::kF64, Op::kAdasum, Values::kWide, 11};
  const std::vector<double> a = Elements<double>(wide, 0, 50);
  const std::vector<double> b = Elements<double>(wide, 1, 50);
  double aa = 0;
  double bb = 0;
  double ab = 0;
  for (size_t i = 0; i < 50; ++i) {
    aa += a[i] * a[i];
    bb += b[i] * b[i];
    ab += a[i] * b[i];
  }
  for (size_t i = 0; i < 50; ++i) {
    values[i] = a[i] * (1 - ab / (2 * aa)) + b[i] * (1 - ab / (2 * bb));
  }
  CHECK_FALSE(CompareAdasum({wide, {0, 1}, 2, 1, 1}, 50, values.data()));
  values[49] *= 1.0001;
  CHECK(CompareAdasum({wide, {0, 1}, 2, 1, 1}, 50, values.data()));
}

TEST_CASE("reference compares copies byte by byte") {
  const Source source{DType::kI16, Op::kSum, Values::kWide, 12};
  std::vector<int16_t> values = Elements<int16_t>(source, 3, 20);
  CHECK_FALSE(CompareCopied(source, 3, 0, 20, values.data()));
  CHECK_FALSE(CompareCopied(source, 3, 5, 15, &values[5]));
  CHECK_FALSE(CompareCopied(source, 3, 0, 0, nullptr));
  CHECK(CompareCopied(source, 2, 0, 20, values.data()));
  ++values[19];
  CHECK(CompareCopied(source, 3, 0, 20, values.data()));
}

}  // namespace muster::test
