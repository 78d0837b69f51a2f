#pragma once

// argv as argparse takes it, made into what CLI11 takes: `-np 4` and the other long names with one
// dash, unique prefixes (`--slots 4`), `-H` with its value attached, and everything from the first
// word on that is no flag, or after `--`, left to the command. Pure.

#include <string>
#include <vector>

#include "common/status.h"
#include "launcher/cli/flags.h"

namespace muster::launcher {

struct RewrittenArgv {
  /// "--num-proc=4", "--verbose"; the two values of "--blacklist-cooldown-range" as words of their
  /// own behind it.
  std::vector<std::string> flags;
  std::vector<std::string> command;
};

/// `words` without the program's name. Errors are kInvalid: an unknown flag (with the nearest one),
/// an ambiguous prefix (with the candidates), a missing or superfluous value.
Result<RewrittenArgv> RewriteArgv(const std::vector<std::string>& words,
                                  const FlagTable& table = RunFlags());

/// The nearest of the flags' spellings, or empty if none is near.
std::string NearestFlag(const std::string& name, const FlagTable& table = RunFlags());

}  // namespace muster::launcher
