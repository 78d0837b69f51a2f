#pragma once

// Faults at exact places, for tests and for users who want to see their job recover:
// MUSTER_FAULT=point:rank:action[:nth], several separated by commas (docs/state.md). Not a way to
// end a worker in earnest: without the variable every point costs one relaxed load.
//
// Threads: ConfigureFaults once, from init(); FaultPoint from any thread.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace muster::worker {

enum class FaultAction : uint8_t { kKill, kStop, kThrow, kExit, kDelay };

struct Fault {
  std::string point;
  std::optional<int> rank;  // In this worker's first world. Absent: any.
  FaultAction action = FaultAction::kKill;
  std::chrono::milliseconds delay{0};
  uint64_t nth = 1;           // Which passage of this process strikes.
  bool replacements = false;  // Also in workers that were spawned later.
  bool operator==(const Fault&) const = default;
};

/// kInvalid, with a sentence that quotes the bad part, if the text does not parse. Empty: no fault.
Result<std::vector<Fault>> ParseFaults(std::string_view text);

/// `spec` is MUSTER_FAULT or nullptr. Workers that were not spawned at the first start keep only
/// the faults marked with `+`, so that a replacement does not die like the worker that it replaces.
Status ConfigureFaults(const char* spec, bool first_start);

/// A named place. May end or stop the process, wait, or throw WorkersLost. The rank of the first
/// call stays this worker's for all faults: else the one who takes over a lost worker's rank would
/// meet the same fault, and the next after it.
void FaultPoint(std::string_view point, int rank);

}  // namespace muster::worker
