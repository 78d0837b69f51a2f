#pragma once

// What flags set in the environment of the workers: the HOROVOD_* variables of horovodrun. A flag
// that is not given leaves a variable as the workers inherit it. Pure.

#include <map>
#include <string>
#include <vector>

#include "launcher/cli/flag_values.h"
#include "launcher/cli/typed_values.h"

namespace muster::launcher {

/// `interfaces` as ReadInterfaces gives them. Bad numbers are refused through `typed`.
std::map<std::string, std::string> WorkerVariables(const FlagValues& values,
                                                   const std::vector<std::string>& interfaces,
                                                   TypedValues& typed);

}  // namespace muster::launcher
