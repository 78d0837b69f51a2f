#include "launcher/incident/incident_writer.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <string>

#include "launcher/incident/incident_json.h"
#include "test/support/temporary_folder.h"

namespace muster::launcher {
namespace {

const JobRecord kJob{"ab", "./train", "1", "h", 1, 1000, true};
constexpr Duration kPatience = std::chrono::seconds(60);  // A bound against hangs.

Incident Numbered(uint64_t number) {
  Incident incident;
  incident.number = number;
  return incident;
}

TEST_CASE("a record begins with its job, and each incident is a line in order") {
  const TemporaryFolder folder;
  IncidentWriter writer(folder.Path("jobs"));
  writer.Start(kJob);
  writer.Write(Numbered(1));
  writer.Write(Numbered(2));
  writer.Finish(kPatience);
  CHECK(folder.Read("jobs/ab/incidents.jsonl") == ToJsonLine(kJob) + "\n" +
                                                      ToJsonLine(Numbered(1), kJob) + "\n" +
                                                      ToJsonLine(Numbered(2), kJob) + "\n");
}

TEST_CASE("a writer that cannot write takes incidents all the same") {
  const TemporaryFolder folder;
  folder.Write("jobs", "a file");
  IncidentWriter writer(folder.Path("jobs"));
  writer.Start(kJob);
  writer.Write(Numbered(1));
  writer.Finish(kPatience);
  CHECK(folder.Read("jobs") == "a file");
}

TEST_CASE("a writer whose disk hangs holds up nobody") {
  std::promise<void> heal;
  // Shared: set by a thread that nobody waits for.
  const auto healed = std::make_shared<std::promise<void>>();
  const std::shared_future<void> is_healed = heal.get_future().share();
  {
    IncidentWriter writer(
        "somewhere", [is_healed, healed](const std::string& /*directory*/, const std::string&) {
          is_healed.wait_for(std::chrono::seconds(20));
          healed->set_value();
          return Result<UniqueFd>(Status::Failed("the disk is back too late"));
        });
    writer.Start({});
    writer.Write({});
    writer.Finish(std::chrono::milliseconds(10));
  }  // Here, though the thread is still at it.
  heal.set_value();
  CHECK(healed->get_future().wait_for(std::chrono::seconds(20)) == std::future_status::ready);
}

TEST_CASE("a writer without a directory, or that is not started, writes nothing") {
  IncidentWriter nowhere("");
  nowhere.Start(kJob);
  nowhere.Write(Numbered(1));
  nowhere.Finish(kPatience);
  const TemporaryFolder folder;
  {
    IncidentWriter unstarted(folder.Path("jobs"));
    unstarted.Write(Numbered(1));
  }
  CHECK(folder.Read("jobs/ab/incidents.jsonl").empty());
}

}  // namespace
}  // namespace muster::launcher
