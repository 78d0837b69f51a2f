#pragma once

// The bookkeeping of commits: which number a commit gets, which one this worker holds, and whose
// commit wins when the members of a new world compare theirs. It holds no bytes of State.
//
// Pure: no thread, no I/O. Used by the one thread that is inside elastic::run.

#include <cstdint>
#include <optional>
#include <vector>

#include "common/ids.h"

namespace muster::worker {

class CommitLedger {
 public:
  /// The id of a snapshot taken at the next agreement operation of `generation`. A commit and its
  /// agreement share one index, so all ranks give the same id to the same place in the program.
  /// `passed`: agreements of the generation that went by without this rank, which had joined.
  CommitId Next(Generation generation, uint64_t passed = 0) const;

  /// That agreement operation has been posted.
  void Posted(Generation generation);

  /// The snapshot of `commit` is complete. What a worker holds never goes back.
  void Hold(CommitId commit);

  const std::optional<CommitId>& held() const { return held_; }

 private:
  Generation generation_;
  uint64_t posted_ = 0;  // Agreement operations posted in generation_.
  std::optional<CommitId> held_;
};

/// Whose snapshot a sync spreads.
struct SyncSource {
  int rank = 0;
  CommitId commit;
  bool fresh = false;      // Nobody holds a commit: the source takes `commit` from its live values.
  bool unanimous = false;  // Every rank holds `commit`.
};

/// `held[rank]` for all ranks of the world: the highest commit wins, and of its holders the lowest
/// rank is the source. If nobody holds one, rank 0 takes (generation, 0).
SyncSource ChooseSource(const std::vector<std::optional<CommitId>>& held, Generation generation);

}  // namespace muster::worker
