#include "launcher/chaos/report.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "test/support/temporary_folder.h"

namespace muster::launcher {
namespace {

using Outcome = ChaosEvent::Outcome;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Instant kBegan{seconds(100)};

ChaosEvent Kill() {
  ChaosEvent event;
  event.number = 3;
  event.kind = "kill";
  event.begin = kBegan + milliseconds(1500);
  event.begin_ms = 1'700'000'000'123;
  event.victim = JobProcess{JobRole::kWorker, 42, 7, "nodea", "17", "1", seconds(9)};
  event.host = "nodea";
  return event;
}

TEST_CASE("an event is told with whom it met and when") {
  CHECK(EventText(Kill(), kBegan, false) ==
        "    1.500 s  #3 kill: worker 17, slot 1, pid 42 on host nodea");
  CHECK(EventText(Kill(), kBegan, true) ==
        "    1.500 s  #3 would kill: worker 17, slot 1, pid 42 on host nodea");
}

TEST_CASE("an event that was undone tells for how long it lasted") {
  ChaosEvent event = Kill();
  event.kind = "pause";
  event.end = event.begin + milliseconds(125);
  CHECK(EventText(event, kBegan, false) ==
        "    1.500 s  #3 pause: worker 17, slot 1, pid 42 on host nodea, for 0.125 s");
}

TEST_CASE("an event of a hook is told with its note, which cannot command the terminal") {
  ChaosEvent event;
  event.number = 4;
  event.kind = "cut";
  event.begin = kBegan;
  event.host = "nodeb";
  event.note = "one\x1b[2Jway";
  event.outcome = Outcome::kFailed;
  CHECK(EventText(event, kBegan, false) == "    0.000 s  #4 cut: host nodeb, failed (one?[2Jway)");
}

TEST_CASE("a line of the log has what tools need") {
  ChaosEvent event = Kill();
  event.end = event.begin + milliseconds(500);
  const auto line = nlohmann::json::parse(EventJson(event));
  CHECK(line == nlohmann::json{{"number", 3},
                               {"kind", "kill"},
                               {"outcome", "done"},
                               {"t_ns", 101'500'000'000},
                               {"end_ns", 102'000'000'000},
                               {"time_ms", 1'700'000'000'123},
                               {"host", "nodea"},
                               {"role", "worker"},
                               {"pid", 42},
                               {"worker", "17"},
                               {"slot", "1"}});
}

TEST_CASE("a line of the log leaves out what is not known, and stands bytes that are no text") {
  ChaosEvent event;
  event.kind = "cut";
  event.note = "\xff";
  event.outcome = Outcome::kSkipped;
  const auto line = nlohmann::json::parse(EventJson(event));
  CHECK(line["outcome"] == "skipped");
  for (const char* name : {"end_ns", "host", "role", "pid", "worker"}) {
    CHECK_FALSE(line.contains(name));
  }
}

TEST_CASE("a report counts, and appends to its log") {
  const TemporaryFolder folder;
  const std::string path = folder.Write("log", "before\n");
  ChaosReport report;
  REQUIRE(report.Open(path).ok());
  report.Tell(Kill(), kBegan, false);
  report.Tell(Kill(), kBegan, false);
  ChaosEvent skipped = Kill();
  skipped.outcome = Outcome::kSkipped;
  report.Tell(skipped, kBegan, false);
  CHECK_FALSE(report.failed());
  CHECK(report.Summary(seconds(60)) == "2 events in 60.0 s (kill 2), 1 skipped");
  ChaosEvent failed = Kill();
  failed.outcome = Outcome::kFailed;
  report.Tell(failed, kBegan, false);
  CHECK(report.failed());
  CHECK(report.Summary(seconds(1)) == "2 events in 1.0 s (kill 2), 1 skipped, 1 FAILED");
  const std::string text = folder.Read("log");
  CHECK(text.find("before\n{") == 0);
  CHECK(std::count(text.begin(), text.end(), '\n') == 5);
  CHECK_FALSE(ChaosReport().Open(folder.Path("no/such/folder")).ok());
}

}  // namespace
}  // namespace muster::launcher
