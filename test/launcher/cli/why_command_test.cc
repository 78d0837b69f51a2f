#include "launcher/cli/why_command.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace muster::launcher {
namespace {

using Words = std::vector<std::string>;

Parsed Parse(Words words, const Words& environment = {"HOME=/home/u"}) {
  words.insert(words.begin(), {"/usr/bin/muster", "why"});
  return ParseCommandLine(words, environment);
}

WhyCommand Command(const Words& words, const Words& environment = {"HOME=/home/u"}) {
  const Parsed parsed = Parse(words, environment);
  REQUIRE(std::holds_alternative<WhyCommand>(parsed));
  return std::get<WhyCommand>(parsed);
}

TEST_CASE("muster why alone asks for the newest job at the usual place") {
  const WhyCommand command = Command({});
  CHECK(command.job.empty());
  CHECK_FALSE(command.json);
  CHECK(command.directory == "/home/u/.local/state/muster/jobs");
}

TEST_CASE("muster why takes flags before and behind the job") {
  for (const Words& words : {Words{"--json", "--incident-dir", "/d", "ab"},
                             Words{"ab", "--json", "--incident-dir=/d"},
                             Words{"--json", "ab", "--incident-dir", "/d"}}) {
    const WhyCommand command = Command(words);
    CHECK(command.job == "ab");
    CHECK(command.json);
    CHECK(command.directory == "/d");
  }
}

TEST_CASE("records lie where the flag says, then the variable, then the state directory") {
  const Words all{"MUSTER_INCIDENT_DIR=/v", "XDG_STATE_HOME=/x", "HOME=/h"};
  CHECK(Command({"--incident-dir", "/f"}, all).directory == "/f");
  CHECK(Command({}, all).directory == "/v");
  CHECK(Command({}, {"XDG_STATE_HOME=/x", "HOME=/h"}).directory == "/x/muster/jobs");
  CHECK(Command({}, {"XDG_STATE_HOME=rel", "HOME=/h"}).directory == "/h/.local/state/muster/jobs");
  CHECK(Command({}, {}).directory.empty());
}

TEST_CASE("muster run keeps its record at the same place") {
  const Parsed parsed = ParseCommandLine(
      {"muster", "run", "-np", "1", "--incident-dir", "/d", "./train"}, {"HOME=/home/u"});
  REQUIRE(std::holds_alternative<RunOptions>(parsed));
  CHECK(std::get<RunOptions>(parsed).incident_directory == "/d");
}

TEST_CASE("muster why refuses two jobs and flags that it does not know") {
  for (const Words& words : {Words{"ab", "cd"}, Words{"--jsn"}, Words{"ab", "--np", "2"}}) {
    const Parsed parsed = Parse(words);
    REQUIRE(std::holds_alternative<PrintAndExit>(parsed));
    CHECK(std::get<PrintAndExit>(parsed).code == 2);
    CHECK(std::get<PrintAndExit>(parsed).text.find("Usage: muster why") == 0);
  }
}

TEST_CASE("muster why --help prints its page") {
  const Parsed parsed = Parse({"--help"});
  REQUIRE(std::holds_alternative<PrintAndExit>(parsed));
  CHECK(std::get<PrintAndExit>(parsed).code == 0);
  CHECK(std::get<PrintAndExit>(parsed).text.find("--json") != std::string::npos);
}

}  // namespace
}  // namespace muster::launcher
