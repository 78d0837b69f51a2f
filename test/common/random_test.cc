#include "common/random.h"

#include <array>
#include <catch2/catch.hpp>

namespace muster {
namespace {

// From the reference implementation of SplitMix64 (Vigna) with the seed 1234567.
TEST_CASE("random gives the sequence of SplitMix64") {
  Random random(1234567);
  CHECK(random.Next() == 6457827717110365317ULL);
  CHECK(random.Next() == 3203168211198807973ULL);
  CHECK(random.Next() == 9817491932198370423ULL);
  CHECK(random.Next() == 4593380528125082431ULL);
  CHECK(random.Next() == 16408922859458223821ULL);
}

TEST_CASE("random stays below its bound and reaches every value") {
  Random random(1);
  std::array<int, 7> seen{};
  for (int i = 0; i < 1000; ++i) {
    const uint64_t value = random.Below(seen.size());
    REQUIRE(value < seen.size());
    ++seen[value];
  }
  for (const int count : seen) {
    CHECK(count > 0);
  }
}

}  // namespace
}  // namespace muster
