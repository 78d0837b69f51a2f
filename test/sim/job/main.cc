// muster-sim: simulated jobs, by seed.
//
//   muster-sim --count 20000             seeds 1, 2, ...
//   muster-sim --seed N [--steps M]      one story, told; broken off after M events
//   muster-sim --seeds FILE              those that have failed once

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <map>
#include <mutex>
#include <sstream>

#include "test/sim/job/job_sim.h"

namespace muster::sim {
namespace {

struct Arguments {
  uint64_t seed = 0;
  uint64_t steps = 0;
  uint64_t first = 1;
  uint64_t count = 0;
  std::string seeds;
  uint64_t success_percent = 40;
};

struct Tally {
  std::map<int, uint64_t> codes;
  uint64_t jobs = 0;
  uint64_t killed = 0;  // Without an exit code: their driver was killed.
  uint64_t failed = 0;
  uint64_t events = 0;
  uint64_t faults = 0;
  uint64_t worlds = 0;
};

void RunOne(uint64_t seed, Tally& tally) {
  JobSim sim({.seed = seed});
  const std::string wrong = sim.Run();
  ++tally.jobs;
  tally.events += sim.events();
  tally.faults += sim.faults();
  tally.worlds += sim.worlds();
  if (!wrong.empty()) {
    ++tally.failed;
    std::cout << "seed " << seed << ": " << wrong << std::endl;
  } else if (sim.exit_code()) {
    ++tally.codes[*sim.exit_code()];
  } else {
    ++tally.killed;
  }
}

/// What the daemons log becomes part of the story.
class StorySink final : public spdlog::sinks::base_sink<std::mutex> {
 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    const ProcessPtr& process = Universe::Get().current();
    Universe::Get().Note("  [" + (process == nullptr ? "?" : process->name) + "] " +
                         std::string(message.payload.data(), message.payload.size()));
  }
  void flush_() override {}
};

int Tell(const Arguments& arguments) {
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("story", std::make_shared<StorySink>()));
  spdlog::set_level(spdlog::level::info);
  JobSim sim({.seed = arguments.seed, .steps_max = arguments.steps, .keep_log = true});
  const std::string wrong = sim.Run();
  for (const std::string& line : sim.log()) {
    std::cout << line << "\n";
  }
  std::cout << "seed " << arguments.seed << ": " << sim.events() << " events, "
            << (wrong.empty() ? "no rule was broken" : wrong) << std::endl;
  return wrong.empty() ? 0 : 1;
}

// `#` begins a remark.
std::vector<uint64_t> ReadSeeds(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    throw CLI::FileError::Missing(path);
  }
  std::vector<uint64_t> seeds;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    for (uint64_t seed = 0; words >> seed;) {
      seeds.push_back(seed);
    }
  }
  return seeds;
}

int Report(const Tally& tally, uint64_t success_percent) {
  std::cout << tally.jobs << " jobs, " << tally.worlds << " worlds, " << tally.faults << " faults, "
            << tally.events << " events\n";
  for (const auto& [code, jobs] : tally.codes) {
    std::cout << "  " << jobs << " ended with " << code << "\n";
  }
  std::cout << "  " << tally.killed << " lost their driver\n"
            << "  " << tally.failed << " broke a rule" << std::endl;
  const auto successes = tally.codes.find(0);
  const uint64_t good = successes == tally.codes.end() ? 0 : successes->second;
  // Faults are to be survived as a rule: mostly failing jobs would test little.
  if (tally.jobs >= 100 && good * 100 < tally.jobs * success_percent) {
    std::cout << "too few jobs succeed" << std::endl;
    return 1;
  }
  return tally.failed == 0 ? 0 : 1;
}

int Main(int argc, char** argv) {
  CLI::App app("Simulated jobs: the production driver, agents and elastic programs in one thread");
  Arguments arguments;
  app.add_option("--seed", arguments.seed, "Tell the story of this seed");
  app.add_option("--steps", arguments.steps, "Break it off after so many events");
  app.add_option("--first", arguments.first, "The first seed of --count")->capture_default_str();
  app.add_option("--count", arguments.count, "Run so many seeds");
  app.add_option("--seeds", arguments.seeds, "Run the seeds in this file");
  CLI11_PARSE(app, argc, argv);
  spdlog::set_level(spdlog::level::off);
  ::clearenv();  // Welcomes carry it.
  if (arguments.seed != 0) {
    return Tell(arguments);
  }
  Tally tally;
  if (!arguments.seeds.empty()) {
    for (const uint64_t seed : ReadSeeds(arguments.seeds)) {
      RunOne(seed, tally);
    }
    if (tally.jobs == 0) {
      std::cout << "no seeds in " << arguments.seeds << std::endl;
      return 1;
    }
    arguments.success_percent = 0;
  }
  for (uint64_t i = 0; i < arguments.count && tally.failed < 20; ++i) {
    RunOne(arguments.first + i, tally);
  }
  return Report(tally, arguments.success_percent);
}

}  // namespace
}  // namespace muster::sim

int main(int argc, char** argv) {
  return muster::sim::Main(argc, argv);
}
