#pragma once

// Operation: what a Handle refers to, one collective, or a group of them, from submission to
// completion. It holds the outcome and who waits for it, never a tensor.
//
// Threads: any. Callbacks of then() run where RunCallbacks is called.

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "common/mutex.h"
#include "muster/muster.h"

namespace muster {

/// Lets a thread that waits for an operation do the work that completes it.
class OperationHelper {
 public:
  virtual ~OperationHelper() = default;
  /// Returns when the operation is complete, or when somebody else is at this work already.
  /// `generation`: the operation's own.
  virtual void HelpComplete(const Operation& operation, uint64_t generation) = 0;
};

struct Operation {
 public:
  using Callback = std::function<void(std::exception_ptr)>;

  /// Complete once `parts` parts are. `helper` outlives the operation's completion; may be null.
  explicit Operation(size_t parts = 1, OperationHelper* helper = nullptr, uint64_t generation = 0)
      : parts_(parts), helper_(helper), generation_(generation) {}

  /// Completes a part: with an error, or with what the operation gives as a number (an agreement's
  /// vote, the last rank of a join, the id of a set). The first error is the operation's. With the
  /// last part, waiters wake; callbacks do not run here, because they belong on the executor
  /// thread: true if there are some for RunCallbacks.
  [[nodiscard]] bool Complete(std::exception_ptr error, int64_t value = 0);
  /// Runs the callbacks that wait for completion, each once.
  void RunCallbacks();

  bool complete() const { return complete_.load(std::memory_order_acquire); }
  /// Waits; throws what the operation met.
  void Wait();
  /// At once if the operation is complete.
  void Then(Callback callback);
  /// As Wait, and gives the number.
  int64_t WaitForValue();

 private:
  mutable Mutex mutex_;
  CondVar completed_;
  std::atomic<bool> complete_{false};  // Written under the mutex.
  size_t parts_ MUSTER_GUARDED_BY(mutex_);
  int64_t value_ MUSTER_GUARDED_BY(mutex_) = 0;
  std::exception_ptr error_ MUSTER_GUARDED_BY(mutex_);
  std::vector<Callback> callbacks_ MUSTER_GUARDED_BY(mutex_);
  OperationHelper* const helper_;
  const uint64_t generation_;
};

/// How the runtime gets from a Handle to its operation.
struct OperationAccess {
  /// Throws Error for a default-constructed handle.
  static Operation& Of(const Handle& handle);
};

}  // namespace muster
