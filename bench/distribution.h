#pragma once

// Distribution: times that were measured, and what people ask of them.
// One thread.

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace muster::bench {

class Distribution {
 public:
  void Add(int64_t nanoseconds);

  size_t count() const { return sorted_.size(); }
  /// The smallest value that at least this share of all is not above; 0: the smallest of all.
  /// Needs a value.
  double Milliseconds(double quantile) const;
  /// Growing.
  const std::vector<int64_t>& nanoseconds() const { return sorted_; }

 private:
  std::vector<int64_t> sorted_;
};

/// Columns: minimum, median, 90th and 99th percentile, maximum, count; milliseconds.
std::string DistributionHead(const std::string& title);
std::string DistributionLine(const std::string& name, const Distribution& times);
/// With every value, growing.
nlohmann::json ToJson(const Distribution& times);

}  // namespace muster::bench
