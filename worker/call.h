#pragma once

// Call: one submitted collective on its way through the runtime, and CallBook: the names in flight.
// A Call is completed exactly once, by whoever is last to touch its memory.
//
// Threads: any, one at a time for a Call; CallBook is thread-safe.

#include <exception>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "common/mutex.h"
#include "worker/operation.h"
#include "worker/runtime.h"

namespace muster::worker {

/// Which operations of this rank are under way: a name may be there once per generation.
class CallBook {
 public:
  /// False: it is in flight already, or too many are.
  bool Add(Generation generation, const std::string& name);
  void Remove(Generation generation, const std::string& name);

  static constexpr size_t kInFlightMax = 65536;

 private:
  Mutex mutex_;
  std::set<std::pair<uint64_t, std::string>> names_ MUSTER_GUARDED_BY(mutex_);
};

class Call {
 public:
  /// The name must be in the book. `book` outlives the call.
  Call(Submission submission,
       Generation generation,
       bool reusable,
       std::shared_ptr<Operation> operation,
       CallBook& book);

  const Submission& submission() const { return submission_; }
  Generation generation() const { return generation_; }
  /// What the rank asks the coordinator for.
  FullRequest Request() const;

  /// True if callbacks wait to be run, on the executor's thread.
  [[nodiscard]] bool Complete(std::exception_ptr error, bool agreed = false);
  void RunCallbacks() { operation_->RunCallbacks(); }

 private:
  const Submission submission_;
  const Generation generation_;
  const bool reusable_;
  const std::shared_ptr<Operation> operation_;  // Shared with the user's handles.
  CallBook& book_;
};

/// Why this rank's call cannot be right, whatever the other ranks do; empty: nothing.
std::string FindObjection(const Submission& submission);

}  // namespace muster::worker
