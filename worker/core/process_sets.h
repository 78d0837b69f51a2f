#pragma once

// ProcessSets: which sets of workers exist in a world, and who is in them. The coordinator and
// every follower keep one each; the entries SetAdded and SetRemoved change all of them at the same
// place of the log. From one world to the next a set goes by the incarnations of its members.
//
// Pure. Threads: one at a time.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/status.h"

namespace muster::worker {

/// A set as it outlives a world. Set 0, all workers, has no record.
struct SetRecord {
  int32_t id = 0;
  std::vector<uint64_t> incarnations;
  bool operator==(const SetRecord&) const = default;
};

class ProcessSets {
 public:
  struct Set {
    int32_t id = 0;
    std::vector<int32_t> ranks;          // Of the world, growing. Empty: it has lost a worker.
    std::vector<uint64_t> incarnations;  // In the order of the ranks; all there ever were.

    bool broken() const { return ranks.empty(); }
    size_t size() const { return ranks.size(); }
    /// Position of the rank among the members; -1: it is none.
    int IndexOf(uint32_t rank) const;
    bool operator==(const Set&) const = default;
  };

  /// A new job's: set 0 only. `incarnations`: of the world by rank, no two equal.
  explicit ProcessSets(const std::vector<uint64_t>& incarnations);
  /// The same for a world whose incarnations matter to nobody.
  static ProcessSets OfSize(uint32_t world_size);

  /// The sets of an older world in this one. kInvalid: no honest coordinator names such records.
  static Result<ProcessSets> FromRecords(const std::vector<SetRecord>& records,
                                         int32_t next_id,
                                         const std::vector<uint64_t>& incarnations);
  std::vector<SetRecord> ToRecords() const;
  /// Grows with every set that was ever added: no id is used twice in a job.
  int32_t next_id() const { return next_id_; }

  uint32_t world_size() const { return static_cast<uint32_t>(world().size()); }
  const Set& world() const { return sets_.begin()->second; }
  /// Null: no such set. The pointer holds until the set is removed.
  const Set* Find(int32_t id) const;
  /// By id; 0 is the first.
  const std::map<int32_t, Set>& all() const { return sets_; }

  /// Why the rank cannot use the set; empty: it can.
  std::string FindUseFault(int32_t id, uint32_t rank) const;
  /// Why the ranks make up no new set; empty: they do.
  std::string FindAddFault(const std::vector<int32_t>& ranks) const;
  std::string FindRemoveFault(int32_t id) const;

  /// The id of the new set. There must be no fault.
  int32_t Add(const std::vector<int32_t>& ranks);
  void Remove(int32_t id);

  bool operator==(const ProcessSets&) const = default;

 private:
  std::map<int32_t, Set> sets_;
  int32_t next_id_ = 1;
};

/// Of two tables of one job, where each rank has seen a part of the log from its start: whether the
/// first has seen more.
bool IsNewer(const std::vector<SetRecord>& records,
             int32_t next_id,
             const std::vector<SetRecord>& than_records,
             int32_t than_next_id);

}  // namespace muster::worker
