#pragma once

// Operation: what a Handle refers to, one collective from submission to completion. It holds the
// outcome and who waits for it, never a tensor.
//
// Threads: any. Complete is called once; callbacks of then() run where RunCallbacks is called.

#include <exception>
#include <functional>
#include <memory>
#include <vector>

#include "common/mutex.h"
#include "muster/muster.h"

namespace muster {

struct Operation {
 public:
  using Callback = std::function<void(std::exception_ptr)>;

  /// Sets the outcome (nullptr: success) and wakes the waiters. Callbacks do not run here, because
  /// they belong on the executor thread: true if there are some for RunCallbacks.
  bool Complete(std::exception_ptr error, bool agreed = false);
  /// Runs the callbacks that wait for completion, each once.
  void RunCallbacks();

  bool complete() const;
  /// Waits; throws what the operation met.
  void Wait();
  /// At once if the operation is complete.
  void Then(Callback callback);
  /// Result of an agreement. Waits; throws what it met.
  bool WaitForAgreement();

 private:
  mutable Mutex mutex_;
  CondVar completed_;
  bool complete_ MUSTER_GUARDED_BY(mutex_) = false;
  bool agreed_ MUSTER_GUARDED_BY(mutex_) = false;
  std::exception_ptr error_ MUSTER_GUARDED_BY(mutex_);
  std::vector<Callback> callbacks_ MUSTER_GUARDED_BY(mutex_);
};

/// How the runtime gets from a Handle to its operation.
struct OperationAccess {
  /// Throws Error for a default-constructed handle.
  static Operation& Of(const Handle& handle);
};

}  // namespace muster
