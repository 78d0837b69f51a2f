#include "launcher/cli/collective_flags.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "launcher/cli/options.h"

namespace muster::launcher {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using Words = std::vector<std::string>;

Parsed Parse(Words flags, const Words& environment) {
  flags.insert(flags.begin(), {"muster", "run", "-np", "2"});
  flags.emplace_back("w");
  return ParseCommandLine(flags, environment);
}

RunOptions Run(const Words& flags, const Words& environment = {}) {
  const Parsed parsed = Parse(flags, environment);
  if (const auto* text = std::get_if<PrintAndExit>(&parsed)) {
    FAIL(text->text);
  }
  return std::get<RunOptions>(parsed);
}

std::string Error(const Words& flags, const Words& environment = {}) {
  const Parsed parsed = Parse(flags, environment);
  REQUIRE(std::holds_alternative<PrintAndExit>(parsed));
  CHECK(std::get<PrintAndExit>(parsed).code == 2);
  return std::get<PrintAndExit>(parsed).text;
}

std::string SettingOf(const RunOptions& options, const std::string& flag) {
  const auto it = std::find_if(options.settings.begin(),
                               options.settings.end(),
                               [&](const Setting& setting) { return setting.flag == flag; });
  return it == options.settings.end() ? "none" : it->value + " (" + it->origin + ")";
}

/// "unset" if the flags leave it as the workers inherit it.
std::string VariableOf(const RunOptions& options, const std::string& name) {
  const auto it = options.worker_environment.find(name);
  return it == options.worker_environment.end() ? "unset" : it->second;
}

}  // namespace

TEST_CASE("collective flags set the variables of the workers, without a warning") {
  struct Served {
    Words flags;
    const char* variable;
    const char* value;
  };
  const Served served = GENERATE(values<Served>({
      {{"--fusion-threshold-mb", "10"}, "HOROVOD_FUSION_THRESHOLD", "10485760"},
      {{"--fusion-threshold-mb", "0"}, "HOROVOD_FUSION_THRESHOLD", "0"},
      {{"--fusion-threshold-mb", "1048576"}, "HOROVOD_FUSION_THRESHOLD", "1099511627776"},
      {{"--cache-capacity", "512"}, "HOROVOD_CACHE_CAPACITY", "512"},
      {{"--thread-affinity", "0,2"}, "HOROVOD_THREAD_AFFINITY", "0,2"},
      {{"--thread-affinity", "3"}, "HOROVOD_THREAD_AFFINITY", "3"},
      {{"--gloo-timeout-seconds", "60"}, "HOROVOD_GLOO_TIMEOUT_SECONDS", "60"},
      {{"--gloo-timeout-seconds", "0.5"}, "HOROVOD_GLOO_TIMEOUT_SECONDS", "0.5"},
      {{"--cpu-operations", "auto"}, "MUSTER_CPU_OPERATIONS", "auto"},
      {{"--cpu-operations", "shm"}, "MUSTER_CPU_OPERATIONS", "shm"},
      {{"--cpu-operations", "hierarchical"}, "MUSTER_CPU_OPERATIONS", "hierarchical"},
      {{"--cpu-operations", "Gloo"}, "MUSTER_CPU_OPERATIONS", "gloo"},
  }));
  const RunOptions options = Run(served.flags);
  CHECK(VariableOf(options, served.variable) == served.value);
  CHECK(options.worker_environment.size() == 1);
  CHECK(options.warnings.empty());
}

TEST_CASE("collective flags that are refused name the flag, its value and what is right") {
  const auto [flag, value, text] = GENERATE(table<const char*, const char*, const char*>({
      {"--fusion-threshold-mb", "-1", "whole number from 0 to 1048576"},
      {"--fusion-threshold-mb", "1048577", "whole number from 0 to 1048576"},
      {"--fusion-threshold-mb", "64.5", "whole number"},
      {"--cache-capacity", "-1", "whole number from 0 to"},
      {"--cache-capacity", "many", "whole number from 0 to"},
      {"--gloo-timeout-seconds", "0", "number from 0.001 to 999999"},
      {"--gloo-timeout-seconds", "-3", "number from 0.001"},
      {"--gloo-timeout-seconds", "1e9", "number from 0.001"},
      {"--cpu-operations", "nccl", "must be auto, shm, hierarchical or gloo"},
      {"--cpu-operations", "shm,gloo", "must be auto, shm, hierarchical or gloo"},
  }));
  const std::string error = Error({flag, value});
  CHECK_THAT(error, Contains("muster: " + std::string(flag) + " " + value + ": "));
  CHECK_THAT(error, Contains(text));
}

TEST_CASE("collective flags take their defaults from variables, which reach the workers as set") {
  const RunOptions options = Run({},
                                 {"HOROVOD_FUSION_THRESHOLD=1000001",
                                  "HOROVOD_CACHE_CAPACITY=7",
                                  "HOROVOD_THREAD_AFFINITY=x,1",
                                  "HOROVOD_GLOO_TIMEOUT_SECONDS=5"});
  CHECK(options.worker_environment.empty());  // They inherit them.
  CHECK(SettingOf(options, "--fusion-threshold-mb") ==
        "1000001 bytes (environment HOROVOD_FUSION_THRESHOLD)");
  CHECK(SettingOf(options, "--cache-capacity") == "7 (environment HOROVOD_CACHE_CAPACITY)");
  CHECK(SettingOf(options, "--thread-affinity") == "x,1 (environment HOROVOD_THREAD_AFFINITY)");
  CHECK(SettingOf(options, "--gloo-timeout-seconds") ==
        "5 (environment HOROVOD_GLOO_TIMEOUT_SECONDS)");
}

TEST_CASE("collective flags count more than their variables, and show built-in values without") {
  const RunOptions given = Run({"--fusion-threshold-mb", "3", "--cpu-operations", "shm"},
                               {"HOROVOD_FUSION_THRESHOLD=junk", "MUSTER_CPU_OPERATIONS=gloo"});
  CHECK(VariableOf(given, "HOROVOD_FUSION_THRESHOLD") == "3145728");
  CHECK(SettingOf(given, "--fusion-threshold-mb") == "3 (flag)");
  CHECK(VariableOf(given, "MUSTER_CPU_OPERATIONS") == "shm");
  const RunOptions bare = Run({});
  CHECK(SettingOf(bare, "--fusion-threshold-mb") == "128 (built-in)");
  CHECK(SettingOf(bare, "--cache-capacity") == "65536 (built-in)");
  CHECK(SettingOf(bare, "--cpu-operations") == "auto (built-in)");
  CHECK(SettingOf(bare, "--gloo-timeout-seconds") == "30 (built-in)");
}

TEST_CASE("collective flags refuse variables that are no numbers before anything starts") {
  const char* bytes = GENERATE("-1", "64mb", "1e6", "1.5", "99999999999999999999999", " 1");
  const std::string error = Error({}, {std::string("HOROVOD_FUSION_THRESHOLD=") + bytes});
  CHECK_THAT(error,
             Contains(std::string("HOROVOD_FUSION_THRESHOLD=") + bytes +
                      " (the default of --fusion-threshold-mb): must be a whole number of bytes "
                      "from 0 to 1099511627776"));
  CHECK_THAT(Error({}, {"HOROVOD_CACHE_CAPACITY=-1"}), Contains("HOROVOD_CACHE_CAPACITY=-1"));
  CHECK_THAT(Error({}, {"HOROVOD_CPU_OPERATIONS=tcp"}), Contains("HOROVOD_CPU_OPERATIONS=tcp"));
}

TEST_CASE("collective flags pass on what Horovod's variable says of CPU operations") {
  const RunOptions gloo = Run({}, {"HOROVOD_CPU_OPERATIONS=gloo"});
  CHECK(VariableOf(gloo, "MUSTER_CPU_OPERATIONS") == "gloo");
  CHECK(gloo.warnings.empty());
  const RunOptions both = Run({}, {"HOROVOD_CPU_OPERATIONS=gloo", "MUSTER_CPU_OPERATIONS=shm"});
  CHECK(VariableOf(both, "MUSTER_CPU_OPERATIONS") == "shm");
}

TEST_CASE("collective flags take MPI and oneCCL for auto, with one warning") {
  const char* name = GENERATE("mpi", "ccl", "MPI");
  const RunOptions by_flag = Run({"--cpu-operations", name});
  CHECK(VariableOf(by_flag, "MUSTER_CPU_OPERATIONS") == "auto");
  REQUIRE(by_flag.warnings.size() == 1);
  CHECK_THAT(by_flag.warnings[0], StartsWith(std::string("--cpu-operations ") + name + ": "));
  const RunOptions by_variable = Run({}, {std::string("HOROVOD_CPU_OPERATIONS=") + name});
  CHECK(VariableOf(by_variable, "MUSTER_CPU_OPERATIONS") == "auto");
  REQUIRE(by_variable.warnings.size() == 1);
  CHECK_THAT(by_variable.warnings[0],
             StartsWith(std::string("HOROVOD_CPU_OPERATIONS=") + name + ": "));
}

TEST_CASE("the flag for Horovod's controller forces no backend") {
  const RunOptions options = Run({"--gloo"});
  CHECK(VariableOf(options, "HOROVOD_CONTROLLER") == "gloo");
  CHECK(VariableOf(options, "MUSTER_CPU_OPERATIONS") == "unset");
}

}  // namespace muster::launcher
