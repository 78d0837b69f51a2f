#pragma once

// Sequencer: the coordinator's side of the log of one generation. It collects what the ranks ask
// for, in any order, and appends one entry as soon as an operation is decided; all ranks follow the
// entries in the order in which they were appended. It moves no data and sends nothing: the caller
// takes the entries and delivers the same ones to every rank.
//
// Pure: time is an argument. Threads: one at a time.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/status.h"
#include "worker/core/log_types.h"

namespace muster::worker {

/// An operation that some ranks, not finished, wait for and others have not submitted.
struct Stall {
  std::string name;
  std::vector<uint32_t> missing;
  Duration waited{};
};

struct StallReport {
  std::vector<Stall> warnings;  // Newly past the warning time; each operation once.
  std::vector<Stall> lost;      // Past the shutdown time.
};

class Sequencer {
 public:
  explicit Sequencer(uint32_t size);

  /// kInvalid: no honest rank sends this (an unknown id, the same operation twice in flight). What
  /// a rank asks for after its Finish counts for nothing.
  Status Submit(uint32_t rank, const Request& request, Instant now);

  /// The rank has shut down after Done. What still needs it fails; calling it again does nothing.
  void Finish(uint32_t rank);

  /// The entries since the last call, in order.
  std::vector<LogEntry> TakeEntries();

  /// Zero means never, for both times.
  StallReport CheckStalls(Instant now, Duration warn, Duration shutdown);

  bool AllOthersFinished(uint32_t rank) const;
  size_t pending_count() const { return pending_.size(); }

  /// Ids are never taken back, so their number is bounded: later names go without.
  static constexpr uint32_t kIdLimit = 65536;

 private:
  /// Ranks that made exactly the same call; more than one group is an error.
  struct Group {
    Signature signature;
    std::vector<uint32_t> ranks;
  };
  struct Pending {
    std::vector<bool> submitted;
    uint32_t count = 0;
    std::vector<Group> groups;
    std::vector<int64_t> first_dims;                          // Allgather only.
    std::map<std::string, std::vector<uint32_t>> objections;  // And whose they are.
    bool reusable = false;
    bool vote = false;
    Instant since;  // The first request of those who wait.
    bool warned = false;
  };
  /// What the last completed call under an id looked like.
  struct Known {
    std::string name;
    Signature signature;
    std::vector<int64_t> first_dims;
  };

  std::optional<FullRequest> Resolve(uint32_t rank, const Request& request) const;
  void Add(Pending& pending, uint32_t rank, const FullRequest& request);
  bool NeedsFinished(const Pending& pending) const;
  bool IsAwaited(const Pending& pending) const;
  bool HasFinished(uint32_t rank) const;
  std::string FinishedText() const;
  void Decide(const std::string& name, Pending& pending);
  OperationKey KeyFor(const std::string& name, const Pending& pending);
  void Forget(const std::string& name);
  void Append(LogEntry entry);

  const uint32_t size_;
  std::vector<uint32_t> finished_;  // In the order of their going.
  std::map<std::string, Pending> pending_;
  std::map<std::string, uint32_t> ids_;
  std::map<uint32_t, Known> known_;
  uint32_t next_id_ = 1;
  std::vector<LogEntry> entries_;
};

}  // namespace muster::worker
