#include "bench/distribution.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/table.h"
#include "common/check.h"

namespace muster::bench {
namespace {

constexpr std::array<double, 5> kQuantiles = {0, 0.5, 0.9, 0.99, 1};

}  // namespace

void Distribution::Add(int64_t nanoseconds) {
  sorted_.insert(std::upper_bound(sorted_.begin(), sorted_.end(), nanoseconds), nanoseconds);
}

double Distribution::Milliseconds(double quantile) const {
  MUSTER_CHECK(!sorted_.empty(), "a distribution without values");
  // 0.07 * 100 is a little more than 7.
  const double below = std::ceil(quantile * static_cast<double>(sorted_.size()) - 1e-9) - 1;
  return static_cast<double>(sorted_[static_cast<size_t>(std::max(below, 0.0))]) / 1e6;
}

std::string DistributionHead(const std::string& title) {
  std::array<char, 160> line{};
  std::snprintf(line.data(),
                line.size(),
                "%-34s %9s %9s %9s %9s %9s %7s",
                title.c_str(),
                "min",
                "p50",
                "p90",
                "p99",
                "max",
                "count");
  return line.data();
}

std::string DistributionLine(const std::string& name, const Distribution& times) {
  std::array<char, 160> line{};
  std::snprintf(line.data(), line.size(), "%-34s", name.c_str());
  std::string text = line.data();
  for (const double quantile : kQuantiles) {
    std::snprintf(line.data(), line.size(), " %9s", TimeText(times.Milliseconds(quantile)).c_str());
    text += line.data();
  }
  std::snprintf(line.data(), line.size(), " %7zu", times.count());
  return text + line.data();
}

nlohmann::json ToJson(const Distribution& times) {
  nlohmann::json values = nlohmann::json::array();
  for (const int64_t nanoseconds : times.nanoseconds()) {
    values.push_back(static_cast<double>(nanoseconds) / 1e6);
  }
  return {{"count", times.count()},
          {"min_ms", times.Milliseconds(0)},
          {"p50_ms", times.Milliseconds(0.5)},
          {"p90_ms", times.Milliseconds(0.9)},
          {"p99_ms", times.Milliseconds(0.99)},
          {"max_ms", times.Milliseconds(1)},
          {"values_ms", values}};
}

}  // namespace muster::bench
