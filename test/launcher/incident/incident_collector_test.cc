#include "launcher/incident/incident_collector.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "test/launcher/core/scenario.h"

namespace muster::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kStart =
    "job elastic np=3 min=1 max=3 cooldown=100s..100s\ngiven running a:3\n";

// The records in the order in which they are to be written, each with the time of the step.
struct Written {
  Duration at;
  Incident incident;
};

std::vector<Written> Play(const std::string& events, const char* start = kStart) {
  std::vector<Written> written;
  IncidentCollector collector{Instant{}};
  Scenario scenario(start + events);
  scenario.Watch([&](const Event& event,
                     const Transition& transition,
                     const Membership& membership,
                     Instant now) {
    for (Incident& incident : collector.Observe(event, transition, membership, now)) {
      written.push_back({now - Instant{}, std::move(incident)});
    }
  });
  // What Membership does is held by test/scenarios; here its effects are not listed.
  const std::string told = scenario.Rewrite();
  REQUIRE(told.substr(0, 1) != "#");
  return written;
}

constexpr const char* kLossAndSync =
    "1s lost 3\n"
    "1.003s timer loss-window\n"
    "1.01s formed g2 1 2 holds 1.4\n"
    "1.02s synced g2 1 2 commit 1.4\n";

TEST_CASE("an incident waits for the exit code of its victim after the sync") {
  const auto written = Play(std::string(kLossAndSync) + "2s exited 3 code 7\n");
  REQUIRE(written.size() == 1);
  CHECK(written[0].at == seconds(2));
  const Victim& victim = written[0].incident.victims.at(0);
  CHECK(victim.fate == Fate::kExited);
  CHECK(victim.code == 7);
  CHECK(written[0].incident.phases.synced == milliseconds(1020));
}

TEST_CASE("an incident does not wait for an exit code that does not come") {
  const auto written = Play(std::string(kLossAndSync) + "2s hosts a:3\n4s hosts a:3\n");
  REQUIRE(written.size() == 1);
  CHECK(written[0].at == seconds(4));
  CHECK(written[0].incident.victims.at(0).fate == Fate::kGone);
}

TEST_CASE("an incident is written at the sync when the code has come before") {
  const auto written = Play(
      "1s lost 3\n1.001s exited 3 signal 9\n1.003s timer loss-window\n"
      "1.01s formed g2 1 2 holds 1.4\n1.02s synced g2 1 2 commit 1.4\n");
  REQUIRE(written.size() == 1);
  CHECK(written[0].at == milliseconds(1020));
  CHECK(written[0].incident.victims.at(0).signal == 9);
  CHECK_FALSE(written[0].incident.victims.at(0).ended_by_us);
}

TEST_CASE("a hold is written when it begins, and replaced by what comes of it") {
  const auto written = Play(
      "1s lost 2\n1.003s timer loss-window\n1.1s exited 2 signal 11\n"
      "2s timer backoff\n2.1s started 3\n2.2s joined 3\n2.3s warm 3\n"
      "2.4s formed g2 1 holds 1.3\n2.4s formed g2 3\n"
      "2.5s synced g2 1 3 commit 1.3\n",
      "job elastic np=2 min=2 max=2\ngiven running a:2\n");
  REQUIRE(written.size() == 2);
  CHECK(written[0].at == milliseconds(1003));
  CHECK(written[0].incident.outcome == Outcome::kHolds);
  CHECK(written[0].incident.generation_after == Generation{});
  CHECK(written[1].incident.number == written[0].incident.number);
  CHECK(written[1].incident.outcome == Outcome::kRuns);
  CHECK(written[1].incident.generation_after == Generation{2});
  CHECK(written[1].incident.newcomers.at(0).worker == Incarnation{3});
}

TEST_CASE("commits that are known and were not resumed are lost") {
  const auto written = Play(
      "1s lost 3\n1.003s timer loss-window\n"
      "1.01s formed g2 1 holds 1.9\n1.01s formed g2 2 holds 1.7\n"
      "1.02s synced g2 1 2 commit 1.7\n1.03s exited 3 code 1\n");
  REQUIRE(written.size() == 1);
  CHECK(written[0].incident.newest_known == CommitId{1, 9});
  CHECK(written[0].incident.resumed == CommitId{1, 7});
}

TEST_CASE("a record of many victims and much evidence has a bound, and says what it leaves out") {
  std::string lost;
  std::string exited;
  for (int id = 1; id <= 40; ++id) {
    lost += "1s lost " + std::to_string(id) + " frozen\n";
    exited += "1.1s exited " + std::to_string(id) + " signal 9\n";
  }
  const auto written = Play(lost + "1.003s timer loss-window\n1.01s formed g2 41 holds 1.2\n" +
                                "1.02s synced g2 41 commit 1.2\n" + exited,
                            "job elastic np=41 min=1 max=41 cooldown=100s..100s\n"
                            "given running a:41\n");
  REQUIRE(written.size() == 1);
  const Incident& incident = written[0].incident;
  CHECK(incident.size_before == 41);
  CHECK(incident.size_after == 1);
  CHECK(incident.victims.size() == kIncidentEntriesMax);
  CHECK(incident.evidence.size() == kIncidentEntriesMax);
  CHECK(incident.left_out == 8 + 8 + 32);  // Victims, their losses, and exits of those that stand.
}

TEST_CASE("long evidence is cut and stands on one line") {
  const std::string text(1000, 'x');
  const auto written = Play("1s agent-lost a " + text + "\n1.003s timer loss-window\n",
                            "job elastic np=1 min=1\ngiven running a:1\n");
  REQUIRE_FALSE(written.empty());
  for (const Evidence& evidence : written.back().incident.evidence) {
    CHECK(evidence.text.size() <= kIncidentTextMax + 3);
  }
}

TEST_CASE("a wish that vanishes leaves no incident") {
  const auto written = Play(
      "1s hosts a:2 b:1\n1.1s attached b\n1.2s started 3\n1.3s joined 3\n"
      "1.4s warm 3\n2s hosts a:2\n3s hosts a:2\n",
      "job elastic np=2 min=2 max=3\ngiven running a:2\n");
  CHECK(written.empty());
}

TEST_CASE("an end without Membership is an incident, once") {
  IncidentCollector collector{Instant{}};
  const auto ended = collector.End(2, "not enough slots", Instant{} + seconds(1));
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].kind == IncidentKind::kEnd);
  CHECK(ended[0].exit_code == 2);
  CHECK(ended[0].cause == "not enough slots");
  CHECK(collector.End(3, "again", Instant{} + seconds(2)).empty());
}

}  // namespace
}  // namespace muster::launcher
