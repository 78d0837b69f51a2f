#pragma once

// `muster chaos`, from its options to its exit code.

#include <string>
#include <vector>

#include "common/status.h"
#include "launcher/cli/chaos_options.h"

namespace muster::launcher {

/// Finds the job and the hooks, blocks the signals that end it, and runs.
int RunChaos(ChaosOptions options);

/// Which kinds may come: those asked for, or all there are. An error names one that is neither
/// built in nor a program of the hook folder, or a program that is called like a built-in kind.
/// Pure.
Result<std::vector<ChaosKind>> KindsToRun(const std::vector<ChaosKind>& asked,
                                          const std::vector<std::string>& hooks);

}  // namespace muster::launcher
