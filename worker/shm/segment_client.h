#pragma once

// SegmentClient: asks the agent for the memory that the workers of this host share in one
// generation (common/worker_segment.h). It does not map it, and knows nothing of what is in it.
//
// Threads: everything on the loop thread, which it never blocks.

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "common/loop.h"
#include "common/status.h"
#include "common/unique_fd.h"
#include "common/worker_segment.h"

namespace muster::worker {

inline constexpr Duration kSegmentDeadline = std::chrono::seconds(1);

class SegmentClient {
 public:
  /// The memfd, of at least SegmentBytes(workers of this agent in the generation), or why there is
  /// none: the agent's refusal, or kTimeout.
  using Done = std::function<void(Result<UniqueFd> segment)>;

  /// `directory`: of the agent's sockets. `done` is called once, from the loop, not from here; it
  /// may destroy this object. Destroyed before, it is not called.
  SegmentClient(Loop& loop,
                const std::string& directory,
                uint64_t incarnation,
                const std::string& key,
                uint64_t generation,
                Done done,
                Duration deadline = kSegmentDeadline);
  ~SegmentClient();
  SegmentClient(const SegmentClient&) = delete;
  SegmentClient& operator=(const SegmentClient&) = delete;

 private:
  void Connect();
  void Retry();
  void Receive();
  void Finish(Result<UniqueFd> result);
  void StopWaiting();

  Loop& loop_;
  const std::string path_;
  SegmentRequest request_;
  Done done_;
  UniqueFd socket_;
  bool watched_ = false;
  Loop::TimerId deadline_;
  Loop::TimerId next_;  // The first attempt, or another one while the agent's queue is full.
};

}  // namespace muster::worker
