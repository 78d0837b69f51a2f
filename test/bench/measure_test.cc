#include "bench/measure.h"

#include <catch2/catch.hpp>

namespace muster::bench {

TEST_CASE("quantiles of a timing are times that were measured") {
  const Timing timing{.times_ns = {1000, 2000, 3000, 4000, 100'000}};
  CHECK(timing.median_us() == Approx(3));
  CHECK(timing.Microseconds(0) == Approx(1));
  CHECK(timing.Microseconds(1) == Approx(100));
  const Timing one{.times_ns = {7000}};
  CHECK(one.median_us() == Approx(7));
  CHECK(one.Microseconds(0.9) == Approx(7));
}

TEST_CASE("what is short is measured more often, and never more than a report can carry") {
  int last = kIterationsMax;
  for (size_t bytes = 4; bytes <= size_t{1} << 32; bytes *= 4) {
    const int iterations = IterationsFor(bytes, 1);
    CHECK(iterations <= last);
    CHECK(iterations >= 3);
    last = iterations;
  }
}

}  // namespace muster::bench
