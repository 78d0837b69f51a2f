#pragma once

// SilenceJudge: decides from samples whether one worker that no longer ticks is frozen, silent or
// only short of CPU. It reads no clock and no /proc: samples and time are arguments. Pure.
//
// A worker without CPU must never be taken for a dead one, so a verdict needs the same evidence at
// every sample of its whole span. A gap between samples means that the agent itself was stopped or
// starved, perhaps with all of its host, and makes every count start anew.

#include <cstdint>
#include <optional>
#include <string_view>

#include "common/clock.h"

namespace muster::launcher {

/// What the threads of a worker are doing.
enum class Activity : uint8_t {
  kUnknown,   // Its threads are gone, or cannot be seen.
  kRunnable,  // At least one runs or waits for a CPU.
  kAsleep,    // Interruptible or not.
  kStopped,   // By a signal.
  kTraced,    // By a debugger, on purpose.
};

/// Of state letters as in /proc/PID/task/TID/stat, in any order; one that is unknown says nothing.
/// A stop concerns the whole process, so one letter tells of it; one runnable thread is enough to
/// make a missing tick a lack of CPU.
Activity ActivityOf(std::string_view states);

struct SilenceSample {
  uint64_t ticks = 0;
  Activity activity = Activity::kUnknown;
};

enum class SilenceVerdict : uint8_t {
  kWell,
  kStarved,  // It would run if it got a CPU: counted, never lost.
  kFrozen,   // Stopped for kFrozenAfter.
  kSilent,   // Asleep without a tick for kSilentAfter.
};

inline constexpr Duration kFrozenAfter = std::chrono::seconds(1);
inline constexpr Duration kSilentAfter = std::chrono::seconds(5);
/// An engine that sleeps is excused for so long while another thread of its process runs.
inline constexpr Duration kExcusedMax = std::chrono::seconds(60);
/// Samples are 200 ms apart; one that is later than this by 500 ms starts the counts anew.
inline constexpr Duration kSampleGapMax = std::chrono::milliseconds(700);

class SilenceJudge {
 public:
  SilenceVerdict Judge(const SilenceSample& sample, Instant now);
  /// True if this many ticks differ from those of the newest sample.
  bool HasTicked(uint64_t ticks) const { return !last_ || ticks != last_->ticks; }
  /// For how long, by the newest sample, the worker has been as it is now, without a tick.
  Duration quiet() const { return sampled_ - since_; }
  /// For how long no sample has shown a tick, whatever the worker was doing.
  Duration without_tick() const { return sampled_ - ticked_; }

 private:
  std::optional<SilenceSample> last_;
  Instant sampled_;  // When `last_` was taken.
  Instant since_;    // From when on each sample had this activity, and no tick came in between.
  Instant ticked_;   // The newest sample with a tick, or the first one.
};

}  // namespace muster::launcher
