#include "test/launcher/core/scenario.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

namespace muster::launcher {
namespace {

std::vector<std::filesystem::path> ScenarioFiles() {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(MUSTER_SCENARIO_DIRECTORY)) {
    if (entry.path().extension() == ".txt") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string ReadFile(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST_CASE("membership does what every scenario file tells") {
  const auto files = ScenarioFiles();
  REQUIRE(files.size() >= 35);
  for (const auto& file : files) {
    DYNAMIC_SECTION(file.stem().string()) {
      CHECK(Scenario(ReadFile(file)).Run() == "");
    }
  }
}

TEST_CASE("membership gives the same effects for the same story") {
  for (const auto& file : ScenarioFiles()) {
    const std::string text = ReadFile(file);
    CHECK(Scenario(text).Rewrite() == Scenario(text).Rewrite());
  }
}

// Rewrites the files given in MUSTER_SCENARIO_REWRITE (separated by blanks; "all" for all). What
// comes out is a proposal, to be read line by line.
TEST_CASE("scenario files can be rewritten", "[.rewrite]") {
  const char* names = std::getenv("MUSTER_SCENARIO_REWRITE");
  REQUIRE(names != nullptr);
  const std::string wanted = " " + std::string(names) + " ";
  for (const auto& file : ScenarioFiles()) {
    if (wanted == " all " || wanted.find(" " + file.stem().string() + " ") != std::string::npos) {
      const std::string text = Scenario(ReadFile(file)).Rewrite();
      std::ofstream(file) << text;
    }
  }
}

TEST_CASE("a scenario reports an effect that does not come") {
  const std::string text =
      "job static np=1\n"
      "0ms hosts a:1\n"
      "            StartAgent b\n";
  CHECK(Scenario(text).Run() ==
        "line 2: 0ms hosts a:1\nexpected: StartAgent b\n     came: StartAgent a");
}

TEST_CASE("a scenario reports an effect that nobody expects") {
  CHECK(Scenario("job static np=1\n0ms hosts a:1\n").Run() ==
        "line 2: 0ms hosts a:1\nexpected: nothing more\n     came: StartAgent a");
}

TEST_CASE("a scenario reports a timer that it does not tell of") {
  const std::string text =
      "job elastic np=2 elastic-timeout=5s\n"
      "0ms hosts a:1\n"
      "            Warn waiting for slots: have 1, need 2\n"
      "9s hosts a:1\n";
  CHECK(Scenario(text).Run() ==
        "line 4: 5s timer elastic\na timer that is not told of: 5s timer elastic");
}

TEST_CASE("a scenario reports a word that it does not know") {
  CHECK(Scenario("job static np=1\n0ms explode a\n").Run() ==
        "line 2: 0ms explode a\nno such event: explode");
  CHECK(Scenario("job static np=1 speed=9\n").Run() ==
        "line 1: job static np=1 speed=9\nno such option: speed=9");
}

}  // namespace
}  // namespace muster::launcher
