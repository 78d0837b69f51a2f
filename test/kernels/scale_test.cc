#include "kernels/scale.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/half.h"
#include "kernels/levels.h"

namespace muster::kernels {
namespace {

// On every level, and with so many elements that whole vectors and more than a piece are among
// them.
template <class T>
std::vector<T> Scaled(const std::vector<T>& in, Element type, double factor) {
  std::vector<T> many;
  while (many.size() < 1100) {
    many.insert(many.end(), in.begin(), in.end());
  }
  std::vector<T> result;
  for (const Level level : kLevels) {
    if (!SelectLevel(level)) {
      continue;
    }
    std::vector<T> out(in.size(), T{77});
    Scale(in.data(), out.data(), type, in.size(), factor);
    REQUIRE((result.empty() || out == result));
    result = out;
    std::vector<T> in_place = many;
    Scale(in_place.data(), in_place.data(), type, in_place.size(), factor);
    for (size_t i = 0; i < in_place.size(); ++i) {
      REQUIRE(in_place[i] == result[i % in.size()]);
    }
  }
  return result;
}

TEST_CASE("scale multiplies floats in their own precision") {
  CHECK(Scaled<double>({1.5, -2, 0}, Element::kF64, 0.1) ==
        std::vector<double>{1.5 * 0.1, -2 * 0.1, 0});
  CHECK(Scaled<float>({1.5F, -2, 3}, Element::kF32, 0.1) ==
        std::vector<float>{1.5F * 0.1F, -2 * 0.1F, 3 * 0.1F});
}

TEST_CASE("scale truncates integers toward zero") {
  CHECK(Scaled<int32_t>({7, -7, 6, 0}, Element::kI32, 0.5) == std::vector<int32_t>{3, -3, 3, 0});
  CHECK(Scaled<int8_t>({5, -5}, Element::kI8, 1.0 / 3) == std::vector<int8_t>{1, -1});
  CHECK(Scaled<uint8_t>({200, 3}, Element::kU8, 0.75) == std::vector<uint8_t>{150, 2});
  CHECK(Scaled<uint16_t>({60000}, Element::kU16, 0.5) == std::vector<uint16_t>{30000});
  CHECK(Scaled<int16_t>({-3}, Element::kI16, 2.5) == std::vector<int16_t>{-7});
  CHECK(Scaled<int64_t>({1LL << 40}, Element::kI64, 0.25) == std::vector<int64_t>{1LL << 38});
}

TEST_CASE("scale clamps integers that do not fit") {
  CHECK(Scaled<uint8_t>({200, 1}, Element::kU8, 2) == std::vector<uint8_t>{255, 2});
  CHECK(Scaled<uint8_t>({200}, Element::kU8, -1) == std::vector<uint8_t>{0});
  CHECK(Scaled<int8_t>({-100, 100}, Element::kI8, 2) == std::vector<int8_t>{-128, 127});
  const int64_t top = std::numeric_limits<int64_t>::max();
  const int64_t bottom = std::numeric_limits<int64_t>::min();
  CHECK(Scaled<int64_t>({top, bottom}, Element::kI64, 1e9) == std::vector<int64_t>{top, bottom});
  CHECK(Scaled<int32_t>({1, -1}, Element::kI32, std::numeric_limits<double>::infinity()) ==
        std::vector<int32_t>{std::numeric_limits<int32_t>::max(),
                             std::numeric_limits<int32_t>::min()});
}

TEST_CASE("scale gives 0 for an integer times NaN") {
  CHECK(Scaled<int32_t>({5}, Element::kI32, std::numeric_limits<double>::quiet_NaN()) ==
        std::vector<int32_t>{0});
}

TEST_CASE("scale by exactly 1 keeps every bit") {
  CHECK(Scaled<int64_t>({(1LL << 53) + 1}, Element::kI64, 1) ==
        std::vector<int64_t>{(1LL << 53) + 1});
  CHECK(Scaled<uint16_t>({0x7E01}, Element::kF16, 1) == std::vector<uint16_t>{0x7E01});
}

TEST_CASE("scale computes 16-bit floats in float and rounds once") {
  const uint16_t half_three = F16FromFloat(3);
  CHECK(Scaled<uint16_t>({half_three}, Element::kF16, 1.0 / 3) ==
        std::vector<uint16_t>{F16FromFloat(3 * (1.0F / 3))});
  CHECK(Scaled<uint16_t>({F16FromFloat(60000)}, Element::kF16, 2) == std::vector<uint16_t>{0x7C00});
  CHECK(Scaled<uint16_t>({Bf16FromFloat(-2)}, Element::kBF16, 0.25) ==
        std::vector<uint16_t>{Bf16FromFloat(-0.5F)});
}

TEST_CASE("scale keeps a bool unless the factor is 0") {
  CHECK(Scaled<uint8_t>({0, 1, 2}, Element::kBool, 0.25) == std::vector<uint8_t>{0, 1, 1});
  CHECK(Scaled<uint8_t>({0, 1}, Element::kBool, 0) == std::vector<uint8_t>{0, 0});
}

TEST_CASE("scale touches nothing for a count of 0") {
  Scale(nullptr, nullptr, Element::kF32, 0, 2);
  float untouched = 4;
  Scale(&untouched, &untouched, Element::kF32, 0, 2);
  CHECK(untouched == 4);
}

}  // namespace
}  // namespace muster::kernels
