#include "kernels/half.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

namespace muster::kernels {
namespace {

bool IsNan16(uint16_t bits, uint16_t infinity) {
  return (bits & 0x7FFF) > infinity;
}

TEST_CASE("f16 keeps every value it can hold on the way through float") {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const uint16_t back = F16FromFloat(FloatFromF16(half));
    if (IsNan16(half, 0x7C00)) {
      REQUIRE(IsNan16(back, 0x7C00));
    } else {
      REQUIRE(back == half);
    }
  }
}

TEST_CASE("bf16 keeps every value it can hold on the way through float") {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const uint16_t back = Bf16FromFloat(FloatFromBf16(half));
    if (IsNan16(half, 0x7F80)) {
      REQUIRE(IsNan16(back, 0x7F80));
    } else {
      REQUIRE(back == half);
    }
  }
}

TEST_CASE("f16 has the values of IEEE binary16") {
  CHECK(FloatFromF16(0x3C00) == 1.0F);
  CHECK(FloatFromF16(0xC000) == -2.0F);
  CHECK(FloatFromF16(0x7BFF) == 65504.0F);
  CHECK(FloatFromF16(0x0400) == 0x1p-14F);
  CHECK(FloatFromF16(0x0001) == 0x1p-24F);
  CHECK(std::signbit(FloatFromF16(0x8000)));
  CHECK(FloatFromF16(0xFC00) == -std::numeric_limits<float>::infinity());
}

TEST_CASE("f16 that is a signalling NaN becomes a quiet float with the same payload") {
  CHECK(std::bit_cast<uint32_t>(FloatFromF16(0x7C01)) == 0x7FC02000U);
  CHECK(std::bit_cast<uint32_t>(FloatFromF16(0xFE03)) == 0xFFC06000U);
  CHECK(F16FromFloat(FloatFromF16(0xFC01)) == 0xFE01);
}

TEST_CASE("f16 rounds to the nearest, ties to even") {
  CHECK(F16FromFloat(2049.0F) == F16FromFloat(2048.0F));  // Tie, down to even.
  CHECK(F16FromFloat(2051.0F) == F16FromFloat(2052.0F));  // Tie, up to even.
  CHECK(F16FromFloat(2049.5F) == F16FromFloat(2050.0F));
  CHECK(F16FromFloat(65519.0F) == 0x7BFF);
  CHECK(F16FromFloat(65520.0F) == 0x7C00);
  CHECK(F16FromFloat(-1e9F) == 0xFC00);
  CHECK(F16FromFloat(0x1p-25F) == 0x0000);  // Half of the smallest: a tie, to even.
  CHECK(F16FromFloat(0x1.8p-24F) == 0x0002);
  CHECK(F16FromFloat(-0x1p-30F) == 0x8000);
  // The largest below 2^-14 rounds up into the normal numbers.
  CHECK(F16FromFloat(std::nextafter(0x1p-14F, 0.0F)) == 0x0400);
}

TEST_CASE("bf16 rounds to the nearest, ties to even") {
  CHECK(Bf16FromFloat(1.0F) == 0x3F80);
  CHECK(Bf16FromFloat(1.0F + 0x1p-8F) == 0x3F80);            // Tie, down to even.
  CHECK(Bf16FromFloat(1.0F + 0x1p-7F + 0x1p-8F) == 0x3F82);  // Tie, up to even.
  CHECK(Bf16FromFloat(std::numeric_limits<float>::max()) == 0x7F80);
  CHECK(IsNan16(Bf16FromFloat(std::numeric_limits<float>::quiet_NaN()), 0x7F80));
}

}  // namespace
}  // namespace muster::kernels
