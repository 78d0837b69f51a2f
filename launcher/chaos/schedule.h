#pragma once

// Schedule: what chaos comes when, drawn from a seed. Pure: the same seed gives the same sequence,
// whatever the job does meanwhile; what the job looks like only decides what a draw falls on. One
// thread.

#include <cstdint>
#include <vector>

#include "common/clock.h"
#include "common/random.h"
#include "launcher/cli/chaos_options.h"

namespace muster::launcher {

/// One event before it is known whom it meets.
struct Draw {
  Duration at{};        // Since the start of the schedule.
  uint64_t kind = 0;    // For PickKind.
  uint64_t victim = 0;  // For PickVictim.
  double share = 0;     // In [0, 1): of the longest time that it may last.
};

class Schedule {
 public:
  Schedule(uint64_t seed, Duration every) : random_(seed), every_(every) {}

  /// Times between events are exponential with mean `every`, but never longer than four times that:
  /// a quiet minute in the middle would say nothing.
  Draw Next();

 private:
  double Share();

  Random random_;
  const Duration every_;
  Duration now_{};
};

/// The index of a kind by its weight, or -1 if there is none to choose from. Hooks are left out
/// while one is under way: two of the user's programs at a time are more than they bargain for.
int PickKind(const std::vector<ChaosKind>& kinds, uint64_t draw, bool with_hooks);

}  // namespace muster::launcher
