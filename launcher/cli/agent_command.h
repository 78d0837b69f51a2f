#pragma once

// The command line of `muster agent`. Pure.

#include <string>
#include <vector>

#include "launcher/cli/options.h"

namespace muster::launcher {

/// `words` behind "agent", `environment` as ParseCommandLine takes it. Without words it is the
/// agent that a driver has started, whatever the environment says.
Parsed ParseAgent(const std::vector<std::string>& words,
                  const std::vector<std::string>& environment);

}  // namespace muster::launcher
