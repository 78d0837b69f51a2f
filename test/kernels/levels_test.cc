#include "kernels/levels.h"

#include <bit>
#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "kernels/half.h"

namespace muster::kernels {
namespace {

TEST_CASE("levels: the baseline runs everywhere, and a level that does not is refused") {
  CHECK(KernelsOf(Level::kBaseline) == &BaselineKernels());
  const LevelKernels* best = nullptr;
  for (const Level level : kLevels) {
    const LevelKernels* kernels = KernelsOf(level);
    CHECK(SelectLevel(level) == (kernels != nullptr));
    if (kernels != nullptr) {
      best = kernels;
    }
    CHECK(&ActiveKernels() == best);
  }
}

// All 16-bit patterns, and floats with every upper half and lower halves around each tie.

TEST_CASE("levels: all widen f16 and bf16 to the bits of half.h, NaN included") {
  std::vector<uint16_t> all(0x10000);
  for (size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<uint16_t>(i);
  }
  std::vector<uint32_t> out(all.size());
  for (const Level level : kLevels) {
    const LevelKernels* kernels = KernelsOf(level);
    if (kernels == nullptr) {
      continue;
    }
    INFO("level " << static_cast<int>(level));
    kernels->widen({Element::kF16}, all.data(), out.data(), all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      REQUIRE(out[i] == std::bit_cast<uint32_t>(FloatFromF16(all[i])));
    }
    kernels->widen({Element::kBF16}, all.data(), out.data(), all.size());
    for (size_t i = 0; i < all.size(); ++i) {
      REQUIRE(out[i] == std::bit_cast<uint32_t>(FloatFromBf16(all[i])));
    }
  }
}

TEST_CASE("levels: all narrow floats to the bits of half.h, NaN included") {
  std::vector<uint32_t> floats;
  for (uint32_t upper = 0; upper <= 0xFFFF; ++upper) {
    for (const uint32_t lower :
         {0U, 1U, 0xFFFU, 0x1000U, 0x1001U, 0x2FFFU, 0x3000U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
      floats.push_back(upper << 16 | lower);
    }
  }
  std::vector<uint16_t> out(floats.size());
  for (const Level level : kLevels) {
    const LevelKernels* kernels = KernelsOf(level);
    if (kernels == nullptr) {
      continue;
    }
    INFO("level " << static_cast<int>(level));
    size_t wrong = 0;
    kernels->narrow({Element::kF16}, floats.data(), out.data(), out.size());
    for (size_t i = 0; i < out.size(); ++i) {
      wrong += out[i] == F16FromFloat(std::bit_cast<float>(floats[i])) ? 0 : 1;
    }
    REQUIRE(wrong == 0);
    kernels->narrow({Element::kBF16}, floats.data(), out.data(), out.size());
    for (size_t i = 0; i < out.size(); ++i) {
      wrong += out[i] == Bf16FromFloat(std::bit_cast<float>(floats[i])) ? 0 : 1;
    }
    REQUIRE(wrong == 0);
  }
}

}  // namespace
}  // namespace muster::kernels
