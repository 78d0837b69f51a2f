#pragma once

// Recovery: one loss, from the kill to the first step of every survivor, from the events of the
// job's trace.
//
// Pure: no clock and no file. One thread.

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "bench/trace_event.h"

namespace muster::bench {

/// What a survivor passes, in this order. A phase is the time from the one before it, that of the
/// first one from the kill.
enum class Milestone : uint8_t {
  kLost,      // Its collective has ended with WorkersLost.
  kRestored,  // Its State is back at the last commit.
  kWorld,     // It has entered the next world.
  kSynced,    // All members of that world hold the same commit.
  kStep,      // It has finished a step.
};
inline constexpr size_t kMilestones = 5;
/// "kill to lost", "lost to restored", ...
const std::string& PhaseName(Milestone end);

struct Loss {
  int64_t t_ns = 0;         // CLOCK_MONOTONIC, just before the signal.
  uint64_t generation = 0;  // Of the world that the victim was in.
  uint64_t victim = 0;      // Incarnation.
  std::set<uint64_t> survivors;
};

class Recovery {
 public:
  explicit Recovery(Loss loss);

  /// An error: another worker than the victim ended, or the job did.
  Status Add(const TraceEvent& event);

  /// Of the kill.
  int64_t t_ns() const { return loss_.t_ns; }
  bool stepped() const { return missing_.empty(); }
  /// True once the victim's process is gone.
  bool reaped() const { return reaped_; }
  /// Survivors that have not finished a step in a newer world.
  const std::set<uint64_t>& missing() const { return missing_; }

  // Below: once stepped().

  /// From the kill to the first step of the last survivor.
  int64_t to_step_ns() const { return last().at_ns[static_cast<size_t>(Milestone::kStep)]; }
  /// Of the last survivor; they add up to to_step_ns().
  std::array<int64_t, kMilestones> PhasesNs() const;
  /// How many worlds further the survivors trained; 1 unless something else was in the way.
  uint64_t generations() const { return last().generation - loss_.generation; }
  /// When the driver ordered the next world, from the kill.
  int64_t to_form_ns() const { return to_form_ns_.value_or(0); }

 private:
  struct Survivor {
    std::array<int64_t, kMilestones> at_ns{};  // From the kill; 0: not yet.
    uint64_t generation = 0;
  };

  void Pass(const TraceEvent& event);
  const Survivor& last() const { return survivors_.at(last_); }

  const Loss loss_;
  std::map<uint64_t, Survivor> survivors_;  // By incarnation.
  std::set<uint64_t> missing_;
  uint64_t last_ = 0;  // Of those that have stepped, the latest by t_ns.
  bool reaped_ = false;
  std::optional<int64_t> to_form_ns_;
};

}  // namespace muster::bench
