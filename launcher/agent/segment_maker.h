#pragma once

// SegmentMaker: allocates the memory that workers share (common/worker_segment.h), and frees it
// again, on a thread of its own: either takes milliseconds, in which the loop must relay the next
// world. It knows nothing of generations.
//
// Bounds: one segment at a time.
// Threads: all methods from one thread; `done` is called on the maker's. The destructor waits for
// the allocation under way.

#include <atomic>
#include <cstddef>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "common/mutex.h"
#include "common/status.h"
#include "common/unique_fd.h"

namespace muster::launcher {

/// A zeroed memfd of this size, sealed against shrinking and growing, with all its pages allocated:
/// who maps it never gets a SIGBUS. An error if there is no memory for it, or if it would take more
/// than half of what is available.
/// A limit on file sizes counts here: call it with SIGXFSZ blocked.
Result<UniqueFd> MakeSegment(size_t bytes);

class SegmentMaker {
 public:
  using Make = std::function<Result<UniqueFd>(size_t bytes)>;
  using Done = std::function<void(Result<UniqueFd> segment)>;
  enum class Urgency : uint8_t {
    kWanted,  // Somebody waits for it.
    kSpare,   // Its pages are also cleared now, so that workers need not do that later.
  };

  SegmentMaker(Make make, Done done);
  ~SegmentMaker();
  SegmentMaker(const SegmentMaker&) = delete;
  SegmentMaker& operator=(const SegmentMaker&) = delete;

  /// `done` follows. Not while one is being made.
  void Start(size_t bytes, Urgency urgency);
  /// The spare that is being made is wanted now: its pages are cleared no further.
  void Hurry() { hurry_ = true; }
  /// Closes it soon.
  void Close(UniqueFd segment);

 private:
  struct Job {
    size_t bytes = 0;
    Urgency urgency = Urgency::kWanted;
  };

  void Run();
  Result<UniqueFd> Perform(const Job& job) const;

  const Make make_;
  const Done done_;
  std::atomic<bool> hurry_ = false;
  Mutex mutex_;
  CondVar changed_;
  std::optional<Job> job_ MUSTER_GUARDED_BY(mutex_);
  std::vector<UniqueFd> closing_ MUSTER_GUARDED_BY(mutex_);
  bool stop_ MUSTER_GUARDED_BY(mutex_) = false;
  std::jthread thread_;  // Last: it uses all the others.
};

}  // namespace muster::launcher
