#pragma once

// The subcommands of muster-bench. Each one adds its flags to the command line; what it returns
// runs it once they are parsed. Errors are for the user: kInvalid is wrong usage.
//
// One thread.

#include <functional>
#include <string>

#include "common/status.h"

namespace CLI {
class App;
}

namespace muster::bench {

using Command = std::function<Status()>;

Command AddCollectives(CLI::App& app);
Command AddSmall(CLI::App& app);
Command AddIdle(CLI::App& app);
Command AddRecovery(CLI::App& app);
/// What the bench starts as one rank of a contestant; not for people.
Command AddRank(CLI::App& app);

}  // namespace muster::bench
