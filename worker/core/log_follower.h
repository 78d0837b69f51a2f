#pragma once

// LogFollower: a rank's side of the log of one generation. It knows which of the rank's operations
// are pending, turns a call into the shortest request, tells which operations an entry is about,
// and keeps the process sets. What the coordinator says is checked: after kInvalid from Apply the
// link to it is worth nothing, and the follower is not used again.
//
// Pure. Threads: one at a time.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "worker/core/log_types.h"
#include "worker/core/process_sets.h"

namespace muster::worker {

/// The caller's number for an operation.
using Ticket = uint64_t;
/// No operation of this rank: it has joined, and zeros stand in for its data.
inline constexpr Ticket kNoTicket = 0;

/// What one entry means for this rank.
struct FollowStep {
  /// False: it is about a process set without this rank.
  bool concerns = true;
  /// The operations that the entry ends, or begins to execute. Execute: one for each item, in
  /// order; kNoTicket: do it with zeros, as `item.joined` describes it. Other entries: one, or none
  /// if it is about no operation of this rank (MemberFinished; it failed for others; what passes
  /// while this rank has joined).
  std::vector<Ticket> tickets;
  /// This rank has joined, and did not ask for what has been agreed on (Agreed, BarrierPassed,
  /// SmallResult).
  bool while_joined = false;
  /// SetRemoved: asked for on that set, too late for the coordinator: InvalidCollective.
  std::vector<Ticket> orphans;
};

class LogFollower {
 public:
  LogFollower(uint32_t rank, ProcessSets sets);
  ~LogFollower();

  /// Begins to follow a call. A number: KnownRequest{it} says it all. 0: the call has to be sent in
  /// full, as it must be with an objection (`objected`). kInvalid: nothing to send, the call is
  /// wrong on this rank alone: the name is in flight, the set cannot be used, or the rank has
  /// joined. `ticket` is not kNoTicket. A known call costs one look-up and copies nothing.
  Result<uint32_t> Submit(Ticket ticket,
                          std::string_view name,
                          const Signature& signature,
                          std::span<const int64_t> splits = {},
                          bool objected = false);

  /// Whether Submit would answer with an id, and which.
  std::optional<uint32_t> FindKnown(std::string_view name,
                                    const Signature& signature,
                                    std::span<const int64_t> splits = {}) const;

  /// kInvalid: no honest coordinator sends this.
  Result<FollowStep> Apply(const LogEntry& entry);

  /// In join(): between its submission and the entry that ends it.
  bool joined() const { return join_ticket_ != kNoTicket; }
  const ProcessSets& sets() const { return sets_; }
  size_t pending_count() const { return pending_count_; }

 private:
  struct Operation;
  struct Names;
  struct EntryVisitor;

  const uint32_t rank_;
  ProcessSets sets_;
  std::unique_ptr<Names> names_;
  Ticket join_ticket_ = kNoTicket;
  size_t pending_count_ = 0;
};

}  // namespace muster::worker
