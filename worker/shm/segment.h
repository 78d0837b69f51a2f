#pragma once

// Segment: one generation's shared memory as a member sees it (common/worker_segment.h has the
// layout). It is only a map: bells, rings and the data areas are other classes' business.
//
// Threads: any, after Map; whoever uses a part of it has to be done before it is destroyed.

#include <cstddef>
#include <memory>

#include "common/status.h"
#include "common/unique_fd.h"
#include "common/worker_segment.h"
#include "worker/shm/bell.h"
#include "worker/shm/ring.h"

namespace muster::worker {

/// For the marks of the shared-memory backend.
inline constexpr size_t kSegmentMarkBytes = 64;

class Segment {
 public:
  /// `members` workers of this host, in order of local rank. The memory may be larger. Forked
  /// children do not see it.
  static Result<std::unique_ptr<Segment>> Map(const UniqueFd& memory, int members);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  int members() const { return members_; }
  BellWord& bell(int member) const;
  /// To the first member, who coordinates, and from it.
  RingMemory to_first(int member) const;
  RingMemory from_first(int member) const;
  /// kSegmentMarkBytes in one cache line of their own, zeroed at first, for the backend.
  char* marks(int member) const;
  /// kSegmentDataBytes, zeroed at first, for the backend.
  char* data(int member) const;

 private:
  Segment(char* base, int members) : base_(base), members_(members) {}
  char* control(int member) const;

  char* const base_;
  const int members_;
};

}  // namespace muster::worker
