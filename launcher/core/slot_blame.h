#pragma once

// SlotBlame remembers which slots and hosts have failed and says when each may be used again
// (docs/membership.md, rule 9). It decides nothing else: who failed, and whether a departure was a
// failure at all, is for Membership to say.
//
// A value without threads, clock or I/O; time comes with each call.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "common/clock.h"
#include "common/ids.h"
#include "launcher/core/membership_types.h"

namespace muster::launcher {

class SlotBlame {
 public:
  /// With `blame_host` a failing worker sets its whole host aside, as Horovod does.
  SlotBlame(std::optional<CooldownRange> cooldown, bool blame_host);

  void WorkerFailed(const SlotId& slot, Instant now);
  /// Its agent was lost or could not be started.
  void HostFailed(const HostId& host, Instant now);
  /// It could not be reached: it is tried again soon, and for as long as the job waits.
  void HostUnreachable(const HostId& host, Instant now);
  void HostReached(const HostId& host);

  /// When the slot may be used again; long past for a clean one, nothing if it is set aside for
  /// good.
  std::optional<Instant> UsableFrom(const SlotId& slot) const;
  bool Usable(const SlotId& slot, Instant now) const;
  bool SetAsideForGood(const SlotId& slot) const { return !UsableFrom(slot).has_value(); }

  /// Failures of workers on this slot in the whole job.
  uint32_t FailuresOf(const SlotId& slot) const;
  /// True if a start there has failed before, for whatever reason.
  bool HasFailed(const SlotId& slot) const;

 private:
  // The back-off of one slot or host: climbs with each failure, sinks in good times.
  struct Ladder {
    uint32_t level = 0;
    uint32_t failures = 0;
    std::vector<Instant> recent;  // Failures of the last ten minutes.
    Instant usable_from = Instant::min();
    bool for_good = false;
  };
  struct HostRecord {
    Ladder ladder;
    uint32_t unreachable = 0;  // In a row.
    Instant retry_from = Instant::min();
  };

  void Climb(Ladder& ladder, Instant now) const;
  Duration DelayAt(uint32_t level) const;

  std::optional<CooldownRange> cooldown_;
  bool blame_host_;
  std::map<SlotId, Ladder> slots_;
  std::map<HostId, HostRecord> hosts_;
};

}  // namespace muster::launcher
