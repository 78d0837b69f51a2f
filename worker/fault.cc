#include "worker/fault.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "common/mutex.h"
#include "muster/muster.h"

namespace muster::worker {
namespace {

constexpr std::chrono::milliseconds kDelayDefault{1000};
constexpr int kExitCode = 13;

struct Point {
  std::string_view name;
  bool may_throw;  // It lies in the user's thread, where an exception has somebody to catch it.
};
constexpr std::array kPoints = {Point{"init", false},
                                Point{"formation", false},
                                Point{"sync", true},
                                Point{"sync_bulk", true},
                                Point{"sync_end", true},
                                Point{"commit", true},
                                Point{"commit_copy", false},
                                Point{"step", true},
                                Point{"allreduce", true},
                                Point{"done", false},
                                Point{"exit", false}};

struct ArmedFault {
  Fault fault;
  uint64_t passages = 0;
};

struct ArmedFaults {
  std::atomic<bool> any{false};
  Mutex mutex;
  std::vector<ArmedFault> faults MUSTER_GUARDED_BY(mutex);
  std::optional<int> rank MUSTER_GUARDED_BY(mutex);  // Of the first passage.
};

ArmedFaults& Armed() {
  static ArmedFaults armed;
  return armed;
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(end + 1);
  }
}

template <class T>
bool ParseNumber(std::string_view text, T& number) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && stop == end && number >= 0;
}

Status Bad(std::string_view fault, const std::string& why) {
  return Status::Invalid("MUSTER_FAULT: \"" + std::string(fault) + "\": " + why +
                         " (point:rank:action[:nth], see docs/state.md)");
}

/// kill, stop, throw, exit, delay or delay=MS, each with an optional `+`.
bool ParseAction(std::string_view text, Fault& fault) {
  if (text.ends_with('+')) {
    fault.replacements = true;
    text.remove_suffix(1);
  }
  constexpr std::string_view kDelay = "delay";
  if (text.starts_with(kDelay)) {
    fault.action = FaultAction::kDelay;
    fault.delay = kDelayDefault;
    text.remove_prefix(kDelay.size());
    int64_t milliseconds = 0;
    if (text.starts_with('=') && ParseNumber(text.substr(1), milliseconds)) {
      fault.delay = std::chrono::milliseconds(milliseconds);
      return true;
    }
    return text.empty();
  }
  constexpr std::array<std::pair<std::string_view, FaultAction>, 4> kActions = {
      {{"kill", FaultAction::kKill},
       {"stop", FaultAction::kStop},
       {"throw", FaultAction::kThrow},
       {"exit", FaultAction::kExit}}};
  for (const auto& [name, action] : kActions) {
    if (text == name) {
      fault.action = action;
      return true;
    }
  }
  return false;
}

Result<Fault> ParseFault(std::string_view text) {
  const std::vector<std::string_view> parts = Split(text, ':');
  if (parts.size() < 3 || parts.size() > 4) {
    return Bad(text, "it needs three or four parts");
  }
  Fault fault;
  const auto* point = std::find_if(
      kPoints.begin(), kPoints.end(), [&](const Point& known) { return known.name == parts[0]; });
  if (point == kPoints.end()) {
    return Bad(text, "no point has the name \"" + std::string(parts[0]) + "\"");
  }
  fault.point = parts[0];
  int rank = 0;
  if (parts[1] != "*") {
    if (!ParseNumber(parts[1], rank)) {
      return Bad(text, "the rank is neither a number nor *");
    }
    fault.rank = rank;
  }
  if (!ParseAction(parts[2], fault)) {
    return Bad(text, "the action is not kill, stop, throw, exit, delay or delay=MS");
  }
  if (fault.action == FaultAction::kThrow && !point->may_throw) {
    return Bad(text, "nobody could catch what is thrown at this point");
  }
  if (parts.size() == 4 && (!ParseNumber(parts[3], fault.nth) || fault.nth == 0)) {
    return Bad(text, "the passage is not a number from 1");
  }
  return fault;
}

void Strike(const Fault& fault, int rank) {
  // Straight to the descriptor: a killed process flushes nothing.
  const std::string line = "muster: MUSTER_FAULT strikes rank " + std::to_string(rank) + " at " +
                           fault.point + " (pid " + std::to_string(::getpid()) + ")\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  switch (fault.action) {
    case FaultAction::kKill:
      ::kill(::getpid(), SIGKILL);
      return;
    case FaultAction::kStop:
      ::kill(::getpid(), SIGSTOP);
      return;
    case FaultAction::kThrow:
      throw WorkersLost("MUSTER_FAULT at " + fault.point);
    case FaultAction::kExit:
      ::_exit(kExitCode);
    case FaultAction::kDelay:
      std::this_thread::sleep_for(fault.delay);
      return;
  }
}

}  // namespace

Result<std::vector<Fault>> ParseFaults(std::string_view text) {
  std::vector<Fault> faults;
  if (text.empty()) {
    return faults;
  }
  for (const std::string_view part : Split(text, ',')) {
    Result<Fault> fault = ParseFault(part);
    if (!fault.ok()) {
      return fault.status();
    }
    faults.push_back(std::move(fault).value());
  }
  return faults;
}

Status ConfigureFaults(const char* spec, bool first_start) {
  Result<std::vector<Fault>> faults = ParseFaults(spec == nullptr ? "" : spec);
  if (!faults.ok()) {
    return faults.status();
  }
  ArmedFaults& armed = Armed();
  const MutexLock lock(armed.mutex);
  armed.faults.clear();
  armed.rank.reset();
  for (Fault& fault : faults.value()) {
    if (first_start || fault.replacements) {
      armed.faults.push_back({.fault = std::move(fault)});
    }
  }
  armed.any.store(!armed.faults.empty(), std::memory_order_relaxed);
  return Status::Ok();
}

void FaultPoint(std::string_view point, int rank) {
  ArmedFaults& armed = Armed();
  if (!armed.any.load(std::memory_order_relaxed)) {
    return;
  }
  std::vector<Fault> due;
  {
    const MutexLock lock(armed.mutex);
    armed.rank = armed.rank.value_or(rank);
    for (ArmedFault& candidate : armed.faults) {
      const Fault& fault = candidate.fault;
      const bool passes = fault.point == point && (!fault.rank || fault.rank == armed.rank);
      if (passes && ++candidate.passages == fault.nth) {
        due.push_back(fault);
      }
    }
  }
  for (const Fault& fault : due) {
    Strike(fault, rank);
  }
}

}  // namespace muster::worker
