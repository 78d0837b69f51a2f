#pragma once

// Membership decides which workers form the current world: events and the time go in, ordered
// effects and a reason in words come out. It does no I/O and owns no thread, lock or clock; the
// same inputs give the same outputs.
//
// Not thread-safe: the driver calls it from its loop thread only.

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "common/ids.h"
#include "launcher/core/membership_types.h"

namespace muster::launcher {

class Membership {
 public:
  explicit Membership(MembershipOptions options);
  ~Membership();
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  /// Takes one event. `now` is not before the `now` of any earlier call. After FinishJob has gone
  /// out every further event is taken and leads to nothing.
  [[nodiscard]] Transition Step(const Event& event, Instant now);

  /// Of the newest world, standing or revoked; 0 before the first.
  Generation generation() const;
  /// The newest world in rank order, as FormWorld named it; lost members stay listed until the
  /// next world. Empty before the first.
  const std::vector<Incarnation>& members() const;
  /// Rank in the newest world; nothing for a worker outside it.
  std::optional<uint32_t> RankOf(Incarnation worker) const;
  /// Nothing once the process is gone.
  std::optional<SlotId> SlotOf(Incarnation worker) const;
  /// True once FinishJob has gone out.
  bool finished() const;
  /// For logs: "gathering", "running", "asking", "holding", "ending", "finished".
  std::string_view phase() const;

  /// MUSTER_CHECKs what must hold between two steps.
  void CheckInvariants() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster::launcher
