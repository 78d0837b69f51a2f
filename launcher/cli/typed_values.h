#pragma once

// TypedValues: reads flags as numbers and times, with bounds. The first bad value is kept as the
// error; everything after it reads as absent, so that the caller checks once. One thread.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "common/status.h"
#include "launcher/cli/flag_values.h"

namespace muster::launcher {

class TypedValues {
 public:
  /// `values` outlives it.
  explicit TypedValues(const FlagValues& values) : values_(values) {}

  std::optional<uint32_t> Count(std::string_view name, uint32_t min, uint32_t max);
  /// Decimals are allowed.
  std::optional<Duration> Seconds(std::string_view name, double min, double max);
  std::optional<double> Number(std::string_view name, double min, double max);
  std::optional<std::string> Text(std::string_view name);

  /// "--min-np 0: why", or for a default from the environment "MUSTER_MIN_NP=0 (...): why".
  void Refuse(std::string_view name, const std::string& why);
  const Status& status() const { return status_; }

 private:
  const std::string* FindText(std::string_view name);

  const FlagValues& values_;
  Status status_;
};

/// --log-level in upper case, WARNING if it is not given; another word is refused.
std::string ReadLogLevel(TypedValues& typed);

/// A plain decimal number that is all of `text`.
std::optional<double> ParseNumber(std::string_view text);

/// 30, 0.5: no more digits than needed.
std::string NumberText(double number);

}  // namespace muster::launcher
