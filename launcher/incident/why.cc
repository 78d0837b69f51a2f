#include "launcher/incident/why.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <map>
#include <optional>
#include <string_view>
#include <variant>

#include "launcher/incident/incident_json.h"

namespace muster::launcher {
namespace {

constexpr int kNothingToTell = 1;

struct Contents {
  std::optional<JobRecord> job;
  std::map<uint64_t, Incident> incidents;  // A later record replaces an earlier one.
  std::string lines;                       // All that are whole.
  bool torn = false;
  size_t not_understood = 0;
  std::string first_trouble;
};

void Take(Contents& contents, std::string_view line, size_t number) {
  Result<Record> record = ParseJsonLine(line);
  if (!record.ok()) {
    if (++contents.not_understood == 1) {
      contents.first_trouble = "line " + std::to_string(number) + ": " + record.status().message();
    }
  } else if (auto* job = std::get_if<JobRecord>(&record.value())) {
    contents.job = std::move(*job);
  } else {
    auto& incident = std::get<Incident>(record.value());
    const uint64_t of = incident.number;
    contents.incidents.insert_or_assign(of, std::move(incident));
  }
}

Contents Parse(std::string_view text) {
  Contents contents;
  const size_t whole = text.rfind('\n') == std::string_view::npos ? 0 : text.rfind('\n') + 1;
  contents.torn = whole != text.size();
  contents.lines = text.substr(0, whole);
  size_t number = 0;
  for (size_t begin = 0; begin < whole;) {
    const size_t end = text.find('\n', begin);
    Take(contents, text.substr(begin, end - begin), ++number);
    begin = end + 1;
  }
  return contents;
}

std::string Remarks(const Contents& contents) {
  std::string text;
  if (contents.torn) {
    text += "The last line is torn: the driver ended while it wrote it. It is left out.\n";
  }
  if (contents.not_understood > 0) {
    text += "Lines of the record that are not understood and left out: " +
            std::to_string(contents.not_understood) + "; the first is " + contents.first_trouble +
            ".\n";
  }
  return text;
}

std::string TellState(const Contents& contents, DriverState driver) {
  const Incident* last =
      contents.incidents.empty() ? nullptr : &contents.incidents.rbegin()->second;
  if (last != nullptr && last->exit_code) {
    return "It has ended with code " + std::to_string(*last->exit_code) + ": " + last->cause +
           ".\n";
  }
  switch (driver) {
    case DriverState::kRuns:
      return "It still runs: its driver has pid " + std::to_string(contents.job->pid) + ".\n";
    case DriverState::kGone:
      return "Its driver is gone without a word: it was killed, or its machine went down. The last "
             "changes may be missing.\n";
    case DriverState::kUnknown:
      break;
  }
  return "Whether it still runs cannot be told from here.\n";
}

std::string TellAll(const Contents& contents, DriverState driver, const ClockText& clock) {
  const JobRecord& job = *contents.job;
  std::string text = "Job " + job.id + ": " + job.command + "\n" + "Started " +
                     clock(job.started_ms) + " on host " + job.host +
                     (job.elastic ? ", elastic" : ", static") + ", Muster " + job.version + ". " +
                     TellState(contents, driver) + Remarks(contents);
  if (contents.incidents.empty()) {
    text += "Nothing has changed its world.\n";
  }
  for (const auto& [number, incident] : contents.incidents) {
    text += "\n" + TellIncident(incident, job, clock);
  }
  return text;
}

// What a host or a program calls itself must not command the terminal.
void Disarm(std::string& text) {
  std::replace_if(
      text.begin(),
      text.end(),
      [](char c) { return (c >= 0 && c < ' ' && c != '\n') || c == '\x7f'; },
      '?');
}

std::string LocalTime(int64_t ms_since_1970) {
  const std::time_t seconds = ms_since_1970 / 1000;
  std::tm time{};
  ::localtime_r(&seconds, &time);
  std::array<char, 64> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &time);
  return text.data();
}

}  // namespace

Told TellRecord(const std::string& record,
                const std::string& path,
                DriverState driver,
                bool json,
                const ClockText& clock) {
  const Contents contents = Parse(record);
  if (contents.lines.empty()) {
    return {"",
            path + " is empty: the driver " +
                (driver == DriverState::kRuns ? "has not written anything yet"
                                              : "ended before it had written anything"),
            kNothingToTell};
  }
  if (json) {
    return {contents.lines, Remarks(contents), 0};
  }
  if (!contents.job) {
    return {"", path + " is no record of a job: " + Remarks(contents), kNothingToTell};
  }
  Told told{TellAll(contents, driver, clock), "", 0};
  Disarm(told.text);
  return told;
}

int RunWhy(const WhyCommand& command) {
  const Result<std::string> path = FindRecord(command.directory, command.job);
  // The driver first: what it writes after that belongs to a job that runs.
  const DriverState driver = path.ok() ? DriverOf(path.value()) : DriverState::kUnknown;
  const Result<std::string> record = path.ok() ? ReadRecord(path.value()) : path;
  Told told = record.ok()
                  ? TellRecord(record.value(), path.value(), driver, command.json, &LocalTime)
                  : Told{"", record.status().message(), kNothingToTell};
  std::fwrite(told.text.data(), 1, told.text.size(), stdout);
  if (!told.error.empty()) {
    Disarm(told.error);
    const bool ends = told.error.ends_with('\n');
    std::fprintf(stderr, "muster: %s%s", told.error.c_str(), ends ? "" : "\n");
  }
  return told.code;
}

}  // namespace muster::launcher
