#pragma once

// What `muster chaos` is asked to do, as values. Data only.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"

namespace muster::launcher {

/// One thing that may happen: one of the built-in kinds, or a program of the hook folder.
struct ChaosKind {
  std::string name;
  uint32_t weight = 1;
  bool operator==(const ChaosKind&) const = default;
};

/// What needs no program of the user's, with the weights of a run without --kinds.
const std::vector<ChaosKind>& BuiltInChaos();
bool IsBuiltInChaos(const std::string& name);
/// Small letters, digits, - and _: what a kind may be called.
bool IsChaosName(std::string_view text);

struct ChaosOptions {
  std::string job;               // An id or its beginning; empty: the only one on this machine.
  std::vector<ChaosKind> kinds;  // Empty: all built-in ones and every hook.
  Duration every = std::chrono::seconds(5);             // Mean time from one event to the next.
  Duration length = std::chrono::hours(24 * 365);       // No event comes after it.
  uint32_t count = UINT32_MAX;                          // Nor after so many.
  std::optional<uint32_t> seed;                         // Nothing: a random one, which is printed.
  Duration pause_max = std::chrono::milliseconds(200);  // Of a pause.
  Duration hook_max = std::chrono::seconds(3);          // Of what a hook begins.
  uint32_t kept = 1;               // So many workers that may hold the state are not hurt.
  std::string hook_directory;      // Empty: no hooks.
  std::string log_file;            // Empty: none.
  std::string incident_directory;  // Tells whether the driver lives, if its record is here.
  bool dry_run = false;
};

}  // namespace muster::launcher
