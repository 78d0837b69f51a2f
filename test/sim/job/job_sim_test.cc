#include "test/sim/job/job_sim.h"

#include <spdlog/spdlog.h>

#include <catch2/catch.hpp>

namespace muster::sim {
namespace {

struct Quiet {
  Quiet() { spdlog::set_level(spdlog::level::off); }
};

TEST_CASE_METHOD(Quiet, "one seed gives one story") {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    std::vector<std::vector<std::string>> logs;
    std::vector<std::optional<int>> codes;
    for (int i = 0; i < 2; ++i) {
      JobSim sim({.seed = seed, .keep_log = true});
      CHECK(sim.Run() == "");
      logs.push_back(sim.log());
      codes.push_back(sim.exit_code());
    }
    INFO("seed " << seed);
    CHECK(logs[0] == logs[1]);
    CHECK(codes[0] == codes[1]);
    CHECK(logs[0].size() > 5);
  }
}

TEST_CASE_METHOD(Quiet, "a story can be broken off, and is the same up to there") {
  std::vector<std::string> whole;
  {
    JobSim sim({.seed = 4, .keep_log = true});
    sim.Run();
    whole = sim.log();
  }
  JobSim sim({.seed = 4, .steps_max = 300, .keep_log = true});
  sim.Run();
  CHECK(sim.events() >= 300);
  REQUIRE(sim.log().size() < whole.size());
  for (size_t i = 0; i < 10; ++i) {
    CHECK(sim.log()[i] == whole[i]);
  }
}

}  // namespace
}  // namespace muster::sim
