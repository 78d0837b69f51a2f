#include "launcher/cli/flags.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

namespace muster::launcher {
namespace {

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  REQUIRE_FALSE(text.str().empty());
  return text.str();
}

const FlagTable* const kTables[] = {&RunFlags(), &AgentFlags(), &WhyFlags(), &ChaosFlags()};

TEST_CASE("flags have spellings of their own, and a long one for the parser") {
  const FlagTable& table = *GENERATE(from_range(std::begin(kTables), std::end(kTables)));
  std::set<std::string> seen;
  for (const Flag& flag : table.flags) {
    CAPTURE(flag.names);
    ForEachWord(flag.names, [&seen](std::string_view name) {
      CHECK(name.starts_with("-"));
      CHECK(seen.emplace(name).second);
    });
    CHECK(LongName(flag).size() > 2);
    CHECK_FALSE(flag.help.empty());
    CHECK_FALSE(flag.group.empty());
    CHECK(FindFlag(ShownName(flag), table) == &flag);
  }
}

TEST_CASE("flags that are served take a default from the environment") {
  const std::set<std::string_view> without{"--stall-check", "--version", "--check-build", "--help"};
  std::set<std::string_view> variables;
  for (const Flag& flag : AllFlags()) {
    CAPTURE(flag.names);
    if (flag.use == FlagUse::kServed && !without.contains(LongName(flag))) {
      CHECK((flag.environment.starts_with("HOROVOD_") || flag.environment.starts_with("MUSTER_")));
      CHECK(variables.insert(flag.environment).second);
    }
  }
  // What identifies a worker must not turn into an option of a launcher started by a worker.
  for (const char* name : {"MUSTER_HOST", "MUSTER_SLOT", "MUSTER_JOB", "HOROVOD_SIZE"}) {
    CHECK_FALSE(variables.contains(name));
  }
}

TEST_CASE("flags of horovodrun are all known") {
  for (const char* name : {"-v",
                           "-np",
                           "-cb",
                           "--disable-cache",
                           "--start-timeout",
                           "--network-interfaces",
                           "--network-interface",
                           "--output-filename",
                           "--verbose",
                           "--config-file",
                           "-p",
                           "-i",
                           "--fusion-threshold-mb",
                           "--cycle-time-ms",
                           "--cache-capacity",
                           "--hierarchical-allreduce",
                           "--no-hierarchical-allreduce",
                           "--hierarchical-allgather",
                           "--no-hierarchical-allgather",
                           "--torus-allreduce",
                           "--no-torus-allreduce",
                           "--autotune",
                           "--no-autotune",
                           "--autotune-log-file",
                           "--autotune-warmup-samples",
                           "--autotune-steps-per-sample",
                           "--autotune-bayes-opt-max-samples",
                           "--autotune-gaussian-process-noise",
                           "--min-np",
                           "--min-num-proc",
                           "--max-np",
                           "--max-num-proc",
                           "--slots-per-host",
                           "--elastic-timeout",
                           "--reset-limit",
                           "--blacklist-cooldown-range",
                           "--timeline-filename",
                           "--timeline-mark-cycles",
                           "--no-timeline-mark-cycles",
                           "--no-stall-check",
                           "--stall-check",
                           "--stall-check-warning-time-seconds",
                           "--stall-check-shutdown-time-seconds",
                           "--mpi-threads-disable",
                           "--no-mpi-threads-disable",
                           "--mpi-args",
                           "--tcp",
                           "--binding-args",
                           "--num-nccl-streams",
                           "--thread-affinity",
                           "--gloo-timeout-seconds",
                           "--log-level",
                           "--log-with-timestamp",
                           "--log-without-timestamp",
                           "--log-hide-timestamp",
                           "--no-log-hide-timestamp",
                           "-prefix-timestamp",
                           "--prefix-output-with-timestamp",
                           "-H",
                           "-hostfile",
                           "--host-discovery-script",
                           "--gloo",
                           "--mpi",
                           "--jsrun"}) {
    CAPTURE(name);
    CHECK(FindFlag(name) != nullptr);
  }
}

// The part of the page that the table of the command is in.
std::string DocsOf(const FlagTable& table) {
  const std::string page = ReadFile(MUSTER_DOCS "/flags.md");
  const size_t agent = page.find("\n## Flags of muster agent");
  REQUIRE(agent != std::string::npos);
  const size_t why = page.find("\n## Flags of muster why");
  REQUIRE(why != std::string::npos);
  const size_t chaos = page.find("\n## Flags of muster chaos");
  REQUIRE(chaos != std::string::npos);
  return &table == &RunFlags()     ? page.substr(0, agent)
         : &table == &AgentFlags() ? page.substr(agent, why - agent)
         : &table == &WhyFlags()   ? page.substr(why, chaos - why)
                                   : page.substr(chaos);
}

TEST_CASE("flags stand in docs/flags.md with spelling, use, default and variables") {
  const FlagTable& table = *GENERATE(from_range(std::begin(kTables), std::end(kTables)));
  const std::string page = DocsOf(table);
  for (const Flag& flag : table.flags) {
    const size_t begin = page.find("| `" + std::string(ShownName(flag)) + "`");
    CAPTURE(flag.names);
    REQUIRE(begin != std::string::npos);
    const std::string row = page.substr(begin, page.find('\n', begin) - begin);
    CAPTURE(row);
    ForEachWord(flag.names, [&row](std::string_view name) {
      CHECK(row.find("`" + std::string(name) + "`") != std::string::npos);
    });
    const std::string use = flag.use == FlagUse::kServed  ? "| kept |"
                            : flag.use == FlagUse::kInert ? "| inert |"
                                                          : "| refused |";
    CHECK(row.find(use) != std::string::npos);
    ForEachWord(flag.environment, [&row](std::string_view name) {
      CHECK(row.find("`" + std::string(name) + "`") != std::string::npos);
    });
    CHECK(row.find(flag.worker_variable) != std::string::npos);
    CHECK(row.find("| " + std::string(flag.builtin)) != std::string::npos);
  }
}

TEST_CASE("flags that set constants stand in docs/constants.md") {
  const FlagTable& table = *GENERATE(from_range(std::begin(kTables), std::end(kTables)));
  const std::string page = ReadFile(MUSTER_DOCS "/constants.md");
  for (const Flag& flag : table.flags) {
    if (flag.use == FlagUse::kServed && flag.values == "SECONDS") {
      CAPTURE(flag.names);
      CHECK(page.find("`" + std::string(ShownName(flag)) + "`") != std::string::npos);
    }
  }
}

}  // namespace
}  // namespace muster::launcher
