#pragma once

// What chaos has done, told: a line per event on standard output, a JSON line per event in the log
// (docs/chaos.md has its fields), and a summary. One thread.

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "common/status.h"
#include "common/unique_fd.h"
#include "launcher/chaos/victims.h"

namespace muster::launcher {

struct ChaosEvent {
  enum class Outcome : unsigned char {
    kDone,
    kSkipped,  // There was nobody whom it could have met.
    kFailed,
  };

  uint64_t number = 0;
  std::string kind;
  Outcome outcome = Outcome::kDone;
  Instant begin;               // CLOCK_MONOTONIC
  std::optional<Instant> end;  // When it was undone; nothing: it is not to be undone.
  int64_t begin_ms = 0;        // Since 1970.
  std::optional<JobProcess> victim;
  std::string host;  // Of the victim, or named by the hook; empty: unknown.
  std::string note;  // Of the hook, or the reason why it was skipped or failed.
};

/// One line without its end. Pure. `began` is the start of the run.
std::string EventText(const ChaosEvent& event, Instant began, bool dry_run);
std::string EventJson(const ChaosEvent& event);

/// A line on standard output. Lost if nobody takes it for a while: a terminal that was halted must
/// not halt what ends a run.
void SayChaos(const std::string& line);

class ChaosReport {
 public:
  /// `log_file`: appended to; empty: none.
  Status Open(const std::string& log_file);
  void Tell(const ChaosEvent& event, Instant began, bool dry_run);
  /// "12 events in 60.0 s (kill 7, pause 5), 1 skipped"
  std::string Summary(Duration took) const;
  bool failed() const { return failed_ > 0; }

 private:
  UniqueFd log_;
  std::map<std::string, uint64_t> done_;
  uint64_t skipped_ = 0;
  uint64_t failed_ = 0;
};

}  // namespace muster::launcher
