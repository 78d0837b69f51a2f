// muster-bench: Muster side by side with what else one could use.

#include <signal.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "bench/commands.h"

namespace {

constexpr int kUsage = 2;

// Whoever waits for ranks sees them (rank_group.h) and ends what it started.
void BlockStopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Measures Muster side by side with Gloo, Open MPI and bare shared memory.",
               "muster-bench");
  app.require_subcommand(1);
  const std::vector<std::pair<std::string, muster::bench::Command>> commands = {
      {"collectives", muster::bench::AddCollectives(app)},
      {"small", muster::bench::AddSmall(app)},
      {"idle", muster::bench::AddIdle(app)},
      {"recovery", muster::bench::AddRecovery(app)},
      {"rank", muster::bench::AddRank(app)},
  };
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  for (const auto& [name, run] : commands) {
    if (!app.got_subcommand(name)) {
      continue;
    }
    if (name != "rank") {
      BlockStopSignals();
    }
    const muster::Status status = run();
    if (!status.ok()) {
      std::fprintf(stderr, "muster-bench: %s\n", status.message().c_str());
      return status.code() == muster::StatusCode::kInvalid ? kUsage : 1;
    }
  }
  return 0;
}
