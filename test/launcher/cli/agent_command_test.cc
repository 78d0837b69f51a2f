#include "launcher/cli/agent_command.h"

#include <catch2/catch.hpp>

namespace muster::launcher {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using Words = std::vector<std::string>;

Parsed Parse(Words words, const Words& environment) {
  words.insert(words.begin(), {"muster", "agent"});
  return ParseCommandLine(words, environment);
}

JoinOptions Join(const Words& words, const Words& environment = {}) {
  const Parsed parsed = Parse(words, environment);
  if (const auto* text = std::get_if<PrintAndExit>(&parsed)) {
    FAIL(text->text);
  }
  REQUIRE(std::get<AgentCommand>(parsed).join);
  return *std::get<AgentCommand>(parsed).join;
}

std::string Error(const Words& words, const Words& environment = {}) {
  const Parsed parsed = Parse(words, environment);
  REQUIRE(std::holds_alternative<PrintAndExit>(parsed));
  CHECK(std::get<PrintAndExit>(parsed).code == 2);
  const std::string& text = std::get<PrintAndExit>(parsed).text;
  CHECK_THAT(text, StartsWith("Usage: muster agent"));
  return text.substr(text.find("\nmuster: ") + 9);
}

const Words kMinimal{"--join", "10.0.0.2:41000", "--secret-file", "/s"};

Words With(const Words& more) {
  Words words = kMinimal;
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace

TEST_CASE("agent without flags is the one that a driver started, whatever the environment says") {
  const Parsed parsed = Parse({}, {"MUSTER_SECRET_FILE=/s", "MUSTER_AGENT_SLOTS=x"});
  REQUIRE(std::holds_alternative<AgentCommand>(parsed));
  CHECK_FALSE(std::get<AgentCommand>(parsed).join);
}

TEST_CASE("agent that dials in needs an address and a secret only") {
  const JoinOptions join = Join(kMinimal);
  CHECK(join.drivers == Words{"10.0.0.2:41000"});
  CHECK(join.secret_file == "/s");
  CHECK(join.slots == 1);
  CHECK(join.host.empty());
  CHECK(join.timeout == std::chrono::seconds(300));
  CHECK(join.interfaces.empty());
  CHECK(join.log_level == "WARNING");
}

TEST_CASE("agent that dials in takes all its flags") {
  const JoinOptions join = Join({"--join",
                                 "10.0.0.2:1, [FD00::2]:65535",
                                 "--slots",
                                 "8",
                                 "--host",
                                 "box-1.example",
                                 "--join-timeout",
                                 "2.5",
                                 "--network-interface",
                                 "eth0,10.0.0.3",
                                 "--log-level",
                                 "debug",
                                 "--secret-file",
                                 "/s"});
  CHECK(join.drivers == Words{"10.0.0.2:1", "[fd00::2]:65535"});
  CHECK(join.slots == 8);
  CHECK(join.host == "box-1.example");
  CHECK(join.timeout == std::chrono::milliseconds(2500));
  CHECK(join.interfaces == Words{"eth0", "10.0.0.3"});
  CHECK(join.log_level == "DEBUG");
}

TEST_CASE("agent that dials in takes defaults from the environment") {
  const JoinOptions join = Join({"--join", "10.0.0.2:1"},
                                {"MUSTER_SECRET_FILE=/s",
                                 "MUSTER_AGENT_SLOTS=4",
                                 "MUSTER_AGENT_HOST=h",
                                 "MUSTER_JOIN_TIMEOUT=9",
                                 "MUSTER_NETWORK_INTERFACE=lo",
                                 "HOROVOD_LOG_LEVEL=info"});
  CHECK(join.secret_file == "/s");
  CHECK(join.slots == 4);
  CHECK(join.host == "h");
  CHECK(join.timeout == std::chrono::seconds(9));
  CHECK(join.interfaces == Words{"lo"});
  CHECK(join.log_level == "INFO");
}

TEST_CASE("agent refuses what is no address of a driver") {
  for (const char* bad : {"10.0.0.2", "10.0.0.2:0", "driver:41000", "fd00::2:41000", ":1", ","}) {
    CAPTURE(bad);
    CHECK_THAT(Error({"--join", bad, "--secret-file", "/s"}), StartsWith("--join "));
  }
}

TEST_CASE("agent says what it misses and what it does not know") {
  CHECK_THAT(Error({"--join", "10.0.0.2:1"}), Contains("MUSTER_SECRET_FILE"));
  CHECK_THAT(Error({"--slots", "2", "--secret-file", "/s"}), StartsWith("--join: required"));
  CHECK_THAT(Error({"x"}), Contains("'x'"));
  CHECK_THAT(Error({"--jion", "10.0.0.2:1"}), Contains("did you mean --join?"));
  CHECK_THAT(Error({"-np", "2"}), Contains("unknown flag -np"));
  CHECK_THAT(Error(With({"--slots", "0"})), StartsWith("--slots 0: "));
  CHECK_THAT(Error(With({"--host", "h:2"})), StartsWith("--host h:2: "));
  CHECK_THAT(Error(With({"--host", "a b"})), StartsWith("--host a b: "));
  CHECK_THAT(Error(With({"--log-level", "loud"})), StartsWith("--log-level loud: "));
  CHECK_THAT(Error(kMinimal, {"MUSTER_AGENT_SLOTS=many"}),
             StartsWith("MUSTER_AGENT_SLOTS=many (the default of --slots): "));
}

TEST_CASE("agent takes an IPv6 address for its name") {
  CHECK(Join(With({"--host", "[::1]"})).host == "::1");
}

TEST_CASE("agent has a help of its own") {
  const Parsed parsed = Parse({"--help"}, {});
  const auto& text = std::get<PrintAndExit>(parsed);
  CHECK(text.code == 0);
  CHECK_THAT(text.text, Contains("--join ADDRESSES") && Contains("[MUSTER_SECRET_FILE]"));
  CHECK_THAT(text.text, !Contains("--min-np"));
  CHECK_THAT(text.text, !Contains("muster run [flags]"));
}

}  // namespace muster::launcher
