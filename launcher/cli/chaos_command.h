#pragma once

// The command line of `muster chaos`. Pure: the environment is an argument.

#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "launcher/cli/options.h"

namespace muster::launcher {

/// "kill:3,pause,cut:2": names of small letters, digits, - and _, each once, with weights from 1.
Result<std::vector<ChaosKind>> ParseChaosKinds(std::string_view text);

/// `words` without "chaos". Flags may stand behind the job.
Parsed ParseChaos(const std::vector<std::string>& words,
                  const std::vector<std::string>& environment);

}  // namespace muster::launcher
