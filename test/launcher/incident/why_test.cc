#include "launcher/incident/why.h"

#include <catch2/catch.hpp>
#include <string>

#include "launcher/incident/incident_json.h"

namespace muster::launcher {
namespace {

const JobRecord kJob{"ab", "./train", "0.1.0", "h", 7, 1000, true};

std::string Clock(int64_t ms) {
  return "<" + std::to_string(ms) + ">";
}

Incident Ended(uint64_t number, const std::string& cause) {
  Incident incident;
  incident.number = number;
  incident.outcome = Outcome::kEnded;
  incident.phases.evidence = std::chrono::seconds(2);
  incident.exit_code = 0;
  incident.cause = cause;
  return incident;
}

std::string Job() {
  return ToJsonLine(kJob) + "\n";
}

std::string Line(const Incident& incident) {
  return ToJsonLine(incident, kJob) + "\n";
}

Told Tell(const std::string& record, DriverState driver = DriverState::kGone, bool json = false) {
  return TellRecord(record, "/r", driver, json, &Clock);
}

TEST_CASE("why tells the job, then each incident") {
  const Told told = Tell(Job() + Line(Ended(1, "all is well")));
  CHECK(told.code == 0);
  CHECK(told.error.empty());
  CHECK(told.text ==
        "Job ab: ./train\n"
        "Started <1000> on host h, elastic, Muster 0.1.0. It has ended with code 0: all is well.\n"
        "\n"
        "#1, <3000>, 2.0 s after the start: the job ended with code 0: all is well.\n");
}

TEST_CASE("why says how it stands with a job that has not ended") {
  const auto tells = [](DriverState driver, const std::string& part) {
    return Tell(Job(), driver).text.find(part) != std::string::npos;
  };
  CHECK(tells(DriverState::kRuns, "It still runs: its driver has pid 7."));
  CHECK(tells(DriverState::kGone, "Its driver is gone without a word"));
  CHECK(tells(DriverState::kUnknown, "cannot be told"));
  CHECK(tells(DriverState::kRuns, "Nothing has changed its world."));
}

TEST_CASE("why takes the last record of each number") {
  const Told told = Tell(Job() + Line(Ended(1, "first")) + Line(Ended(1, "second")));
  CHECK(told.text.find("first") == std::string::npos);
  CHECK(told.text.find("second") != std::string::npos);
}

TEST_CASE("why tells what is whole of a record with a torn or a strange line") {
  const Told told = Tell(Job() + "nonsense\n" + Line(Ended(1, "well")) + "{\"record\": \"inc");
  CHECK(told.code == 0);
  CHECK(told.text.find("The last line is torn") != std::string::npos);
  CHECK(told.text.find("left out: 1; the first is line 2: not a JSON object") != std::string::npos);
  CHECK(told.text.find("#1") != std::string::npos);
}

TEST_CASE("why has nothing to tell of a record that is empty or of something else") {
  CHECK(Tell("").code == 1);
  CHECK(Tell("").error == "/r is empty: the driver ended before it had written anything");
  CHECK(Tell("", DriverState::kRuns).error ==
        "/r is empty: the driver has not written anything yet");
  CHECK(Tell("torn").code == 1);
  CHECK(Tell("a,b,c\n").error.find("/r is no record of a job") == 0);
}

TEST_CASE("why passes the whole lines through as JSON") {
  const Told told = Tell(Job() + Line(Ended(1, "well")) + "torn", DriverState::kGone, true);
  CHECK(told.code == 0);
  CHECK(told.text == Job() + Line(Ended(1, "well")));
  CHECK(told.error.find("torn") != std::string::npos);
}

TEST_CASE("why does not let a record command the terminal") {
  const Told told = Tell(Job() + Line(Ended(1, "\x1b[2J\x7f")));
  CHECK(told.text.find('\x1b') == std::string::npos);
  CHECK(told.text.find("?[2J?") != std::string::npos);
}

}  // namespace
}  // namespace muster::launcher
