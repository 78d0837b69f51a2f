// The scenarios of test/scenarios, told as `muster why` tells them. A file told/NAME.txt has what
// is to be said about the scenario NAME; what holds of every story is checked over all of them.

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "launcher/incident/incident_collector.h"
#include "launcher/incident/incident_json.h"
#include "launcher/incident/incident_text.h"
#include "test/launcher/core/scenario.h"

namespace muster::launcher {
namespace {

namespace fs = std::filesystem;

std::string ReadFile(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::vector<fs::path> FilesOf(const char* folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".txt") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

struct Story {
  std::vector<Incident> records;  // As they would be written.
  std::map<uint64_t, Incident> incidents;
  std::set<uint64_t> worlds;  // That followed another one.
  bool finished = false;
};

Story Play(const fs::path& scenario) {
  Story story;
  IncidentCollector collector{Instant{}};
  Instant last{};
  Scenario played(ReadFile(scenario));
  played.Watch([&](const Event& event,
                   const Transition& transition,
                   const Membership& membership,
                   Instant now) {
    last = now;
    for (const Effect& effect : transition.effects) {
      const auto* form = std::get_if<FormWorld>(&effect);
      if (form != nullptr && form->generation.value > 1) {
        story.worlds.insert(form->generation.value);
      }
      story.finished |= std::holds_alternative<FinishJob>(effect);
    }
    for (const Incident& incident : collector.Observe(event, transition, membership, now)) {
      story.records.push_back(incident);
      story.incidents[incident.number] = incident;
    }
  });
  REQUIRE(played.Run() == "");
  if (!story.finished) {
    // What the file leaves open is closed here, so that it can be looked at.
    for (const Incident& incident : collector.End(99, "the scenario is over", last)) {
      story.records.push_back(incident);
      story.incidents[incident.number] = incident;
    }
  }
  return story;
}

std::string Tell(const Story& story) {
  const JobRecord job{"0123", "./train", "1", "h", 1, 0, true};
  std::string text;
  for (const auto& [number, incident] : story.incidents) {
    if (incident.cause != "the scenario is over") {
      text += TellIncident(incident, job, &UtcText) + "\n";
    }
  }
  return text;
}

TEST_CASE("incidents of a scenario are told as its file says") {
  const auto files = FilesOf(MUSTER_TOLD_DIRECTORY);
  REQUIRE(files.size() >= 12);
  for (const fs::path& file : files) {
    DYNAMIC_SECTION(file.stem().string()) {
      const fs::path scenario = fs::path(MUSTER_SCENARIO_DIRECTORY) / file.filename();
      CHECK(Tell(Play(scenario)) == ReadFile(file));
    }
  }
}

// Writes the files anew; what comes out is to be read and judged before it is kept.
TEST_CASE("the told scenarios can be rewritten", "[.rewrite]") {
  for (const fs::path& file : FilesOf(MUSTER_TOLD_DIRECTORY)) {
    const std::string text = Tell(Play(fs::path(MUSTER_SCENARIO_DIRECTORY) / file.filename()));
    std::ofstream(file) << text;
  }
}

TEST_CASE("every change of world in every scenario has exactly one incident") {
  for (const fs::path& file : FilesOf(MUSTER_SCENARIO_DIRECTORY)) {
    CAPTURE(file.stem().string());
    const Story story = Play(file);
    std::map<uint64_t, int> told;
    for (const auto& [number, incident] : story.incidents) {
      if (incident.generation_after.value != 0 && incident.outcome != Outcome::kSame) {
        ++told[incident.generation_after.value];
      }
    }
    for (const uint64_t world : story.worlds) {
      CAPTURE(world);
      CHECK(told[world] == 1);
    }
    CHECK(told.size() == story.worlds.size());
  }
}

TEST_CASE("every scenario that ends has one incident that ends the job, the last one") {
  for (const fs::path& file : FilesOf(MUSTER_SCENARIO_DIRECTORY)) {
    CAPTURE(file.stem().string());
    const Story story = Play(file);
    const auto ends =
        std::count_if(story.records.begin(), story.records.end(), [](const Incident& incident) {
          return incident.outcome == Outcome::kEnded && incident.exit_code.has_value();
        });
    CHECK(ends == 1);
    CHECK(story.incidents.rbegin()->second.outcome == Outcome::kEnded);
  }
}

TEST_CASE("every record of every scenario survives its JSON line and has a headline") {
  const JobRecord job{"0123", "./train", "1", "h", 1, 0, true};
  for (const fs::path& file : FilesOf(MUSTER_SCENARIO_DIRECTORY)) {
    CAPTURE(file.stem().string());
    for (const Incident& incident : Play(file).records) {
      const Result<Record> read = ParseJsonLine(ToJsonLine(incident, job));
      REQUIRE(read.ok());
      REQUIRE(std::holds_alternative<Incident>(read.value()));
      CHECK(std::get<Incident>(read.value()) == incident);
      CHECK_FALSE(Headline(incident).empty());
    }
  }
}

TEST_CASE("phases of an incident never go back") {
  for (const fs::path& file : FilesOf(MUSTER_SCENARIO_DIRECTORY)) {
    CAPTURE(file.stem().string());
    for (const Incident& incident : Play(file).records) {
      CAPTURE(incident.number, Headline(incident));
      const Phases& phases = incident.phases;
      REQUIRE(phases.evidence.has_value());
      Duration last = *phases.evidence;
      for (const auto& phase : {phases.revoke, phases.form, phases.formed, phases.synced}) {
        CHECK(phase.value_or(last) >= last);
        last = std::max(last, phase.value_or(last));
      }
    }
  }
}

}  // namespace
}  // namespace muster::launcher
