#pragma once

// The values that flags and environment give, as text with their origin, and --help. The one place
// that calls CLI11. Knows the table of flags, not what the values mean. Pure: the environment is an
// argument.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "launcher/cli/flags.h"

namespace muster::launcher {

struct GivenValue {
  std::vector<std::string>
      values;               // One per word of Flag::values, last occurrence; a switch: none.
  std::string environment;  // Name of the variable that it comes from; empty: a flag.
};

class FlagValues {
 public:
  /// `flags` as RewriteArgv leaves them, `environment` as "NAME=value". A variable counts where its
  /// flag is not given and its value is not empty; a switch is off at 0, false, no and off.
  static Result<FlagValues> Parse(const std::vector<std::string>& flags,
                                  const std::vector<std::string>& environment,
                                  const FlagTable& table = RunFlags());

  /// Null if neither flag nor environment gives it. Any spelling of the flag will do.
  const GivenValue* Find(std::string_view name) const;
  bool Has(std::string_view name) const { return Find(name) != nullptr; }
  bool HasFlag(std::string_view name) const;
  const FlagTable& table() const { return *table_; }

  /// Forgets a value that comes from the environment: one that a flag contradicts.
  void DropFromEnvironment(std::string_view name);

 private:
  const FlagTable* table_ = nullptr;
  std::map<std::string_view, GivenValue> given_;  // By LongName.
};

std::string HelpText(const FlagTable& table = RunFlags());

}  // namespace muster::launcher
