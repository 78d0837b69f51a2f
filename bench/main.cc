// muster-bench: Muster side by side with what else one could use.

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "bench/commands.h"
#include "bench/process_waits.h"

namespace {

constexpr int kUsage = 2;

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
      muster::bench::BlockInterrupts();
    }
    const muster::Status status = run();
    if (!status.ok()) {
      std::fprintf(stderr, "muster-bench: %s\n", status.message().c_str());
      return status.code() == muster::StatusCode::kInvalid ? kUsage : 1;
    }
  }
  return 0;
}
