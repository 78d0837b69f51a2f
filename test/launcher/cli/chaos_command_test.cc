#include "launcher/cli/chaos_command.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace muster::launcher {
namespace {

using Words = std::vector<std::string>;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

Parsed Parse(Words words, const Words& environment = {"HOME=/home/u"}) {
  words.insert(words.begin(), {"/usr/bin/muster", "chaos"});
  return ParseCommandLine(words, environment);
}

ChaosOptions Options(const Words& words, const Words& environment = {"HOME=/home/u"}) {
  const Parsed parsed = Parse(words, environment);
  if (const auto* text = std::get_if<PrintAndExit>(&parsed)) {
    FAIL(text->text);
  }
  return std::get<ChaosOptions>(parsed);
}

std::string ErrorOf(const Words& words) {
  const Parsed parsed = Parse(words);
  REQUIRE(std::holds_alternative<PrintAndExit>(parsed));
  CHECK(std::get<PrintAndExit>(parsed).code == 2);
  return std::get<PrintAndExit>(parsed).text;
}

TEST_CASE("muster chaos alone disturbs the only job with everything that is built in") {
  const ChaosOptions options = Options({});
  CHECK(options.job.empty());
  CHECK(options.kinds.empty());
  CHECK(options.every == seconds(5));
  CHECK(options.count == UINT32_MAX);
  CHECK_FALSE(options.seed);
  CHECK(options.pause_max == milliseconds(200));
  CHECK(options.kept == 1);
  CHECK_FALSE(options.dry_run);
  CHECK(options.incident_directory == "/home/u/.local/state/muster/jobs");
}

TEST_CASE("muster chaos takes flags before and behind the job") {
  const Words flags{"--every",        "1.5", "--minutes",   "2",   "--count",    "9",
                    "--seed",         "7",   "--pause-max", "0.1", "--hook-max", "4",
                    "--keep",         "3",   "--hook-dir",  "/h",  "--log",      "/l",
                    "--incident-dir", "/d",  "--dry-run"};
  for (const bool job_first : {false, true}) {
    Words words = flags;
    words.insert(job_first ? words.begin() : words.end(), "ab12");
    const ChaosOptions options = Options(words);
    CHECK(options.job == "ab12");
    CHECK(options.every == milliseconds(1500));
    CHECK(options.length == minutes(2));
    CHECK(options.count == 9);
    CHECK(options.seed == 7);
    CHECK(options.pause_max == milliseconds(100));
    CHECK(options.hook_max == seconds(4));
    CHECK(options.kept == 3);
    CHECK(options.hook_directory == "/h");
    CHECK(options.log_file == "/l");
    CHECK(options.incident_directory == "/d");
    CHECK(options.dry_run);
  }
}

TEST_CASE("muster chaos takes kinds with weights") {
  CHECK(Options({"--kinds", "kill"}).kinds == std::vector<ChaosKind>{{"kill", 1}});
  CHECK(Options({"--kinds", "kill:6,pause,cut-a_1:20"}).kinds ==
        std::vector<ChaosKind>{{"kill", 6}, {"pause", 1}, {"cut-a_1", 20}});
}

TEST_CASE("muster chaos refuses kinds that cannot be") {
  CHECK(ErrorOf({"--kinds", "kill,"}).find("is not the name of a kind") != std::string::npos);
  CHECK(ErrorOf({"--kinds", "../x"}).find("is not the name of a kind") != std::string::npos);
  CHECK(ErrorOf({"--kinds", "Kill"}).find("is not the name of a kind") != std::string::npos);
  CHECK(ErrorOf({"--kinds", "kill:0"}).find("weight of kill") != std::string::npos);
  CHECK(ErrorOf({"--kinds", "kill:1x"}).find("weight of kill") != std::string::npos);
  CHECK(ErrorOf({"--kinds", "kill:"}).find("weight of kill") != std::string::npos);
  CHECK(ErrorOf({"--kinds", "kill,stop,kill:2"}).find("kill stands there twice") !=
        std::string::npos);
}

TEST_CASE("muster chaos refuses values out of range, unknown flags and two jobs") {
  for (const Words& words : {Words{"--every", "0"},
                             Words{"--count", "0"},
                             Words{"--keep", "0"},
                             Words{"--seed", "-1"},
                             Words{"--hook-max", "x"},
                             Words{"--pause-max", "1"},
                             Words{"--evry", "1"},
                             Words{"ab", "cd"}}) {
    CAPTURE(words);
    CHECK(ErrorOf(words).find("Usage: muster chaos") == 0);
  }
}

TEST_CASE("muster chaos --help names each built-in kind") {
  const Parsed parsed = Parse({"--help"});
  REQUIRE(std::holds_alternative<PrintAndExit>(parsed));
  const auto& page = std::get<PrintAndExit>(parsed);
  CHECK(page.code == 0);
  for (const ChaosKind& kind : BuiltInChaos()) {
    CHECK(IsBuiltInChaos(kind.name));
    CHECK(page.text.find(kind.name) != std::string::npos);
  }
  CHECK_FALSE(IsBuiltInChaos("cut"));
}

}  // namespace
}  // namespace muster::launcher
