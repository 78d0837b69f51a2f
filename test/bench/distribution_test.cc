#include "bench/distribution.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace muster::bench {
namespace {

Distribution Of(const std::vector<int64_t>& milliseconds) {
  Distribution times;
  for (const int64_t value : milliseconds) {
    times.Add(value * 1'000'000);
  }
  return times;
}

}  // namespace

TEST_CASE("a percentile is the smallest value that enough others are not above") {
  std::vector<int64_t> values;
  for (int64_t i = 1000; i > 0; --i) {
    values.push_back(i);
  }
  const Distribution times = Of(values);
  CHECK(times.Milliseconds(0) == 1);
  CHECK(times.Milliseconds(0.5) == 500);
  CHECK(times.Milliseconds(0.07) == 70);
  CHECK(times.Milliseconds(0.99) == 990);
  CHECK(times.Milliseconds(1) == 1000);
}

TEST_CASE("of a few values the 99th percentile is the largest") {
  const Distribution times = Of({30, 10, 20});
  CHECK(times.Milliseconds(0.5) == 20);
  CHECK(times.Milliseconds(0.99) == 30);
  CHECK(Of({7}).Milliseconds(0) == 7);
  CHECK(Of({7}).Milliseconds(1) == 7);
}

TEST_CASE("a distribution's columns stand under their heads") {
  CHECK(DistributionHead("milliseconds") ==
        "milliseconds                             min       p50       p90       p99       max"
        "   count");
  CHECK(DistributionLine("first step", Of({1, 20, 300})) ==
        "first step                              1.00      20.0       300       300       300"
        "       3");
}

TEST_CASE("a distribution's JSON has every value") {
  const nlohmann::json json = ToJson(Of({20, 10}));
  CHECK(json["count"] == 2);
  CHECK(json["p50_ms"] == 10);
  CHECK(json["values_ms"] == std::vector<double>{10, 20});
}

}  // namespace muster::bench
