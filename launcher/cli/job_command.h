#pragma once

// A command about one job: `muster COMMAND [flags] [JOB]`, with flags before and after the job.
// Pure: the environment is an argument.

#include <functional>
#include <string>
#include <vector>

#include "common/status.h"
#include "launcher/cli/flag_values.h"
#include "launcher/cli/options.h"

namespace muster::launcher {

struct JobCommand {
  const FlagTable& flags;
  std::string usage;  // "muster why [flags] [JOB|PATH]; see muster why --help"
  /// What the flags mean; the job is empty if none is named.
  std::function<Result<Parsed>(const FlagValues& values, const std::string& job)> read;
};

/// `words` without the command's own. Usage errors and --help as text to be printed.
Parsed ParseJobCommand(const JobCommand& command,
                       const std::vector<std::string>& words,
                       const std::vector<std::string>& environment);

}  // namespace muster::launcher
