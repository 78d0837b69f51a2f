#pragma once

// The flags of the workers' collectives: checks them, and what they set for the workers. Pure.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/cli/flag_values.h"
#include "launcher/cli/typed_values.h"

namespace muster::launcher {

/// Over the variables that flags set as they stand. Bad values are refused through `typed`.
void ReadCollectives(const FlagValues& values,
                     TypedValues& typed,
                     std::map<std::string, std::string>& variables);

/// A sentence if --cpu-operations asks for what Muster does not have; else empty.
std::string WarnOfCpuOperations(const FlagValues& values);

/// A value for --verbose: the variable of --fusion-threshold-mb has another unit than the flag.
std::string_view UnitOf(std::string_view flag, const GivenValue& given);

}  // namespace muster::launcher
