#pragma once

// SegmentStore: one segment of shared memory for the agent's newest generation, for the workers
// that ask for it, and a spare for the next one, so that a recovery does not wait for memory. Who
// may ask is the agent's decision. A segment belongs to one generation and is never used again.
//
// The first request makes the segment. A while after it was handed out the spare is made, of the
// same size; the next generation takes it if it is large enough, and makes its own if not. Without
// memory all requests of the generation get the same error: its workers go without.
//
// Bounds: two segments, and those that are being closed.
// Threads: everything on the loop thread; nothing blocks. Allocating and freeing is SegmentMaker's.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "common/loop.h"
#include "common/status.h"
#include "common/unique_fd.h"
#include "launcher/agent/segment_maker.h"

namespace muster::launcher {

class SegmentStore {
 public:
  struct Options {
    SegmentMaker::Make make = MakeSegment;
    /// The world's first moments are not disturbed.
    Duration spare_delay = std::chrono::milliseconds(100);
  };
  /// The descriptor stays the store's: use it within the call. Called once, perhaps within Ask;
  /// never if the store ends before.
  using Reply = std::function<void(const Result<int>& segment)>;

  SegmentStore(Loop& loop, Options options);
  explicit SegmentStore(Loop& loop) : SegmentStore(loop, Options()) {}
  ~SegmentStore();
  SegmentStore(const SegmentStore&) = delete;
  SegmentStore& operator=(const SegmentStore&) = delete;

  /// A world with so many members of this host was ordered. Forgets the segment of an older one.
  void Order(uint64_t generation, size_t members);
  /// Forgets the segment of this generation, if it is the newest one.
  void Revoke(uint64_t generation);
  void Ask(uint64_t generation, Reply reply);
  /// The next generation need not wait, if it is no larger.
  bool has_spare() const { return spare_.fd.valid(); }

 private:
  struct Segment {
    UniqueFd fd;
    size_t bytes = 0;
  };

  void Forget();
  void Provide();
  void StartMaking(size_t bytes, SegmentMaker::Urgency urgency);
  void OnMade(Result<UniqueFd> fd);
  void MakeSpare();
  void AnswerAll(const Result<int>& segment);

  Loop& loop_;
  const Duration spare_delay_;
  // shared_ptr: closures that outlive this object in the loop's queue see that it is gone.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);

  uint64_t generation_ = 0;
  bool over_ = true;            // Revoked, or none was ordered yet.
  size_t needed_ = 0;           // Bytes.
  Segment segment_;             // Of this generation.
  Status failure_;              // Why there is none.
  std::vector<Reply> waiting_;  // For segment_.
  Segment spare_;
  size_t making_ = 0;  // Bytes of what the maker makes; 0: nothing.
  Loop::TimerId spare_timer_;
  SegmentMaker maker_;  // Last: its thread posts to the loop about this object.
};

}  // namespace muster::launcher
