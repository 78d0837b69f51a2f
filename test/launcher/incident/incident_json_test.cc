#include "launcher/incident/incident_json.h"

#include <catch2/catch.hpp>
#include <string>

namespace muster::launcher {
namespace {

const JobRecord kJob{"ab", "./train 'x'\n", "0.1.0", "h", 7, 1'700'000'000'042, true};

Incident Example() {
  Incident incident;
  incident.number = 1;
  incident.victims = {
      {Incarnation{1}, SlotId{HostId{"a"}, 2}, std::nullopt, 0, Fate::kSpare, -1, 9, true}};
  incident.phases.evidence = Duration(1);
  incident.exit_code = 75;
  incident.cause = "too few";
  return incident;
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

TEST_CASE("a job survives its JSON line") {
  const std::string line = ToJsonLine(kJob);
  CHECK(line.find('\n') == std::string::npos);
  const Result<Record> read = ParseJsonLine(line);
  REQUIRE(read.ok());
  CHECK(std::get<JobRecord>(read.value()) == kJob);
}

TEST_CASE("an incident with every field at its edge survives its JSON line") {
  const Result<Record> read = ParseJsonLine(ToJsonLine(Example(), kJob));
  REQUIRE(read.ok());
  CHECK(std::get<Incident>(read.value()) == Example());
}

TEST_CASE("bytes that are no text are replaced, not passed on or refused") {
  Incident incident = Example();
  incident.cause = "\xff\xfe";
  const Result<Record> read = ParseJsonLine(ToJsonLine(incident, kJob));
  REQUIRE(read.ok());
  CHECK(std::get<Incident>(read.value()).cause == "\xef\xbf\xbd\xef\xbf\xbd");
}

TEST_CASE("clock time of an incident is that of its first evidence") {
  Incident incident = Example();
  incident.phases.evidence = std::chrono::milliseconds(1958);
  CHECK(ToJsonLine(incident, kJob).find("\"time\":\"2023-11-14T22:13:22.000Z\"") !=
        std::string::npos);
}

TEST_CASE("lines that nobody wrote like this are errors") {
  const std::string line = ToJsonLine(Example(), kJob);
  for (const std::string& bad : {std::string(),
                                 std::string("{"),
                                 std::string("[]"),
                                 std::string("{}"),
                                 std::string("\"incident\""),
                                 std::string("{\"record\":\"incident\"}"),
                                 std::string("{\"record\":7}"),
                                 std::string("{\"record\":\"other\"}"),
                                 std::string(100'000, '['),
                                 line.substr(0, line.size() / 2),
                                 Replaced(line, "\"number\":1", "\"number\":\"1\""),
                                 Replaced(line, "\"kind\":\"end\"", "\"kind\":\"party\""),
                                 Replaced(line, "\"evidence_s\":1e-06", "\"evidence_s\":1e300"),
                                 Replaced(line, "\"evidence\":[]", "\"evidence\":{}"),
                                 Replaced(line, "\"resumed\":\"unknown\"", "\"resumed\":[1]"),
                                 Replaced(line, "\"fate\":\"spare\"", "\"fate\":[]")}) {
    CAPTURE(bad.substr(0, 200));
    CHECK_FALSE(ParseJsonLine(bad).ok());
  }
}

}  // namespace
}  // namespace muster::launcher
