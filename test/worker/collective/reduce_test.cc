#include "worker/collective/reduce.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

namespace muster::worker {

TEST_CASE("half floats convert to float and back without a change") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = HalfToFloat(half);
    if (std::isnan(value)) {
      CHECK(std::isnan(HalfToFloat(FloatToHalf(value))));
    } else if (FloatToHalf(value) != half) {
      FAIL("half " << bits << " came back as " << FloatToHalf(value));
    }
    const float wide = BFloat16ToFloat(half);
    if (std::isnan(wide)) {
      CHECK(std::isnan(BFloat16ToFloat(FloatToBFloat16(wide))));
    } else if (FloatToBFloat16(wide) != half) {
      FAIL("bfloat16 " << bits << " came back as " << FloatToBFloat16(wide));
    }
  }
}

TEST_CASE("half floats have the values of IEEE 754") {
  CHECK(HalfToFloat(0x3C00) == 1.0f);
  CHECK(HalfToFloat(0xC000) == -2.0f);
  CHECK(HalfToFloat(0x7BFF) == 65504.0f);
  CHECK(HalfToFloat(0x0001) == 0x1p-24f);
  CHECK(std::signbit(HalfToFloat(0x8000)));
  CHECK(FloatToHalf(65519.0f) == 0x7BFF);
  CHECK(FloatToHalf(65520.0f) == 0x7C00);
  CHECK(FloatToHalf(-1e30f) == 0xFC00);
  CHECK(FloatToHalf(1e-30f) == 0x0000);
}

TEST_CASE("half floats round to nearest, ties to even") {
  CHECK(FloatToHalf(1.0f + 0x1p-11f) == 0x3C00);      // A tie, down to even.
  CHECK(FloatToHalf(1.0f + 3 * 0x1p-11f) == 0x3C02);  // A tie, up to even.
  CHECK(FloatToHalf(1.0f + 0x1p-11f + 0x1p-20f) == 0x3C01);
  CHECK(FloatToHalf(0x1p-25f) == 0x0000);  // A tie below the smallest.
  CHECK(FloatToHalf(0x1.8p-24f) == 0x0002);
  CHECK(FloatToBFloat16(1.0f + 0x1p-8f) == 0x3F80);
  CHECK(FloatToBFloat16(1.0f + 3 * 0x1p-8f) == 0x3F82);
}

TEST_CASE("integer sums and products wrap") {
  const int8_t a[] = {100, -128, 16};
  const int8_t b[] = {100, -1, 16};
  int8_t out[3];
  Reduce(DType::kI8, Op::kSum, out, a, b, 3);
  CHECK(out[0] == -56);
  CHECK(out[1] == 127);
  Reduce(DType::kI8, Op::kProduct, out, a, b, 3);
  CHECK(out[2] == 0);
  const uint16_t big[] = {65535};
  uint16_t product[1];
  Reduce(DType::kU16, Op::kProduct, product, big, big, 1);
  CHECK(product[0] == 1);
  const int64_t most[] = {std::numeric_limits<int64_t>::max()};
  int64_t sum[1];
  Reduce(DType::kI64, Op::kSum, sum, most, most, 1);
  CHECK(sum[0] == -2);
}

TEST_CASE("minimum and maximum pass a NaN on from either side") {
  const float nan = std::nanf("");
  const float a[] = {nan, 1, 2};
  const float b[] = {1, nan, 3};
  for (const Op op : {Op::kMin, Op::kMax}) {
    float out[3];
    Reduce(DType::kF32, op, out, a, b, 3);
    CHECK(std::isnan(out[0]));
    CHECK(std::isnan(out[1]));
    CHECK(out[2] == (op == Op::kMin ? 2 : 3));
  }
}

TEST_CASE("booleans are combined by logic, whatever byte stands for true") {
  const uint8_t a[] = {0, 0, 2, 255};
  const uint8_t b[] = {0, 1, 0, 7};
  uint8_t out[4];
  for (const Op op : {Op::kSum, Op::kMax}) {
    Reduce(DType::kBool, op, out, a, b, 4);
    CHECK(std::vector<uint8_t>(out, out + 4) == std::vector<uint8_t>{0, 1, 1, 1});
  }
  for (const Op op : {Op::kProduct, Op::kMin}) {
    Reduce(DType::kBool, op, out, a, b, 4);
    CHECK(std::vector<uint8_t>(out, out + 4) == std::vector<uint8_t>{0, 0, 0, 1});
  }
}

TEST_CASE("scaling truncates integers toward zero and saturates") {
  int8_t small[] = {7, -7, 100, -100};
  Scale(DType::kI8, small, small, 4, 0.5);
  CHECK(std::vector<int8_t>(small, small + 4) == std::vector<int8_t>{3, -3, 50, -50});
  Scale(DType::kI8, small, small, 4, 10);
  CHECK(std::vector<int8_t>(small, small + 4) == std::vector<int8_t>{30, -30, 127, -128});
  uint8_t unsigned_value[] = {5};
  Scale(DType::kU8, unsigned_value, unsigned_value, 1, -1);
  CHECK(unsigned_value[0] == 0);
  int64_t wide[] = {int64_t{1} << 62};
  Scale(DType::kI64, wide, wide, 1, 4);
  CHECK(wide[0] == std::numeric_limits<int64_t>::max());
}

TEST_CASE("scaling by a third rounds floats once") {
  float value[] = {1, 10};
  Scale(DType::kF32, value, value, 2, 1.0 / 3);
  CHECK(value[0] == 1.0f / 3);
  CHECK(value[1] == 10.0f / 3);
  uint16_t half[] = {FloatToHalf(3)};
  Scale(DType::kF16, half, half, 1, 0.5);
  CHECK(HalfToFloat(half[0]) == 1.5f);
}

TEST_CASE("widened integers come back, and saturate where they do not fit") {
  const int16_t in[] = {-32768, 0, 32767};
  int64_t wide[3];
  WidenIntegers(DType::kI16, wide, in, 3);
  CHECK(wide[0] == -32768);
  int16_t out[3];
  NarrowIntegers(DType::kI16, out, wide, 3);
  CHECK(std::equal(in, in + 3, out));
  wide[0] = -100'000;
  NarrowIntegers(DType::kI16, out, wide, 1);
  CHECK(out[0] == -32768);
}

}  // namespace muster::worker
