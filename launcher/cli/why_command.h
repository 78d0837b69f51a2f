#pragma once

// The command line of `muster why`, and where the records of jobs lie. Pure: the environment is an
// argument.

#include <string>
#include <vector>

#include "launcher/cli/options.h"
#include "launcher/cli/typed_values.h"

namespace muster::launcher {

/// --incident-dir, its variable, or muster/jobs in $XDG_STATE_HOME or ~/.local/state; empty if
/// there is not even a HOME.
std::string ReadIncidentDirectory(TypedValues& typed, const std::vector<std::string>& environment);

/// `words` without "why". Flags may stand behind the job.
Parsed ParseWhy(const std::vector<std::string>& words, const std::vector<std::string>& environment);

}  // namespace muster::launcher
