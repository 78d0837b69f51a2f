#include "launcher/chaos/report.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "common/write_line.h"

namespace muster::launcher {
namespace {

using Outcome = ChaosEvent::Outcome;

constexpr std::array<const char*, 3> kOutcomes{"done", "skipped", "failed"};
constexpr std::array<const char*, 3> kRoles{"worker", "agent", "reaper"};
constexpr mode_t kLogMode = 0644;
constexpr Duration kPatience = std::chrono::milliseconds(100);
constexpr double kMicroseconds = 1e6;

std::string Seconds(Duration time, const char* format) {
  std::array<char, 32> text{};
  std::snprintf(
      text.data(), text.size(), format, static_cast<double>(time.count()) / kMicroseconds);
  return text.data();
}

std::string WhomText(const ChaosEvent& event) {
  std::string text;
  if (event.victim) {
    text = kRoles.at(static_cast<size_t>(event.victim->role));
    if (event.victim->role == JobRole::kWorker) {
      text += " " + event.victim->incarnation + ", slot " + event.victim->slot + ",";
    }
    text += " pid " + std::to_string(event.victim->pid);
  }
  if (!event.host.empty()) {
    text += (text.empty() ? "host " : " on host ") + event.host;
  }
  return text;
}

int64_t Nanoseconds(Instant time) {
  return std::chrono::nanoseconds(time.time_since_epoch()).count();
}

}  // namespace

std::string EventText(const ChaosEvent& event, Instant began, bool dry_run) {
  std::string text = Seconds(event.begin - began, "%9.3f s") + "  #" +
                     std::to_string(event.number) + " " + (dry_run ? "would " : "") + event.kind;
  const std::string whom = WhomText(event);
  text += whom.empty() ? "" : ": " + whom;
  if (event.end) {
    text += ", for " + Seconds(*event.end - event.begin, "%.3f s");
  }
  if (event.outcome != Outcome::kDone) {
    text += std::string(", ") + kOutcomes.at(static_cast<size_t>(event.outcome));
  }
  text += event.note.empty() ? "" : " (" + event.note + ")";
  for (char& c : text) {
    // What a hook prints must not command the terminal.
    c = (c >= 0 && c < ' ') || c == '\x7f' ? '?' : c;
  }
  return text;
}

std::string EventJson(const ChaosEvent& event) {
  nlohmann::json line{{"number", event.number},
                      {"kind", event.kind},
                      {"outcome", kOutcomes.at(static_cast<size_t>(event.outcome))},
                      {"t_ns", Nanoseconds(event.begin)},
                      {"time_ms", event.begin_ms}};
  if (event.end) {
    line["end_ns"] = Nanoseconds(*event.end);
  }
  if (!event.host.empty()) {
    line["host"] = event.host;
  }
  if (event.victim) {
    line["role"] = kRoles.at(static_cast<size_t>(event.victim->role));
    line["pid"] = event.victim->pid;
    if (event.victim->role == JobRole::kWorker) {
      line["worker"] = event.victim->incarnation;
      line["slot"] = event.victim->slot;
    }
  }
  if (!event.note.empty()) {
    line["note"] = event.note;
  }
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void SayChaos(const std::string& line) {
  WriteLine(STDOUT_FILENO, line, kPatience);
}

Status ChaosReport::Open(const std::string& log_file) {
  if (log_file.empty()) {
    return Status::Ok();
  }
  // A pipe that nobody reads takes no line, and holds nothing up.
  log_.Reset(
      ::open(log_file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, kLogMode));
  if (!log_.valid()) {
    return Status::Invalid(log_file + ": " + strerror(errno));
  }
  return Status::Ok();
}

void ChaosReport::Tell(const ChaosEvent& event, Instant began, bool dry_run) {
  switch (event.outcome) {
    case Outcome::kDone:
      ++done_[event.kind];
      break;
    case Outcome::kSkipped:
      ++skipped_;
      break;
    case Outcome::kFailed:
      ++failed_;
      break;
  }
  SayChaos(EventText(event, began, dry_run));
  if (log_.valid()) {
    const std::string line = EventJson(event) + "\n";
    // A full disk costs lines, never the undoing of what is under way.
    [[maybe_unused]] const ssize_t size = ::write(log_.get(), line.data(), line.size());
  }
}

std::string ChaosReport::Summary(Duration took) const {
  uint64_t all = 0;
  std::string kinds;
  for (const auto& [kind, count] : done_) {
    all += count;
    kinds += (kinds.empty() ? "" : ", ") + kind + " " + std::to_string(count);
  }
  std::string text = std::to_string(all) + " events in " + Seconds(took, "%.1f s");
  text += kinds.empty() ? "" : " (" + kinds + ")";
  text += skipped_ == 0 ? "" : ", " + std::to_string(skipped_) + " skipped";
  text += failed_ == 0 ? "" : ", " + std::to_string(failed_) + " FAILED";
  return text;
}

}  // namespace muster::launcher
