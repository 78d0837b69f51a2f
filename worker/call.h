#pragma once

// Call: one submitted collective on its way through the runtime, and CallBook: the names in flight.
// A Call is completed exactly once, by whoever is last to touch its memory.
//
// Threads: any, one at a time for a Call; CallBook is thread-safe.

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <unordered_set>
#include <utility>

#include "common/mutex.h"
#include "worker/operation.h"
#include "worker/runtime.h"

namespace muster::worker {

/// Which operations of this rank are under way: a name may be there once per generation and process
/// set.
class CallBook {
 public:
  /// False: it is in flight already, or too many are.
  bool Add(Generation generation, const ProcessSet& set, const std::string& name);
  void Remove(Generation generation, const ProcessSet& set, const std::string& name);

  static constexpr size_t kInFlightMax = 65536;

 private:
  Mutex mutex_;
  // Looked up only, never walked through.
  std::unordered_set<std::string> keys_ MUSTER_GUARDED_BY(mutex_);
};

class Call {
 public:
  /// The name must be in the book. `book` outlives the call.
  Call(Submission submission,
       Generation generation,
       bool reusable,
       std::shared_ptr<Operation> operation,
       CallBook& book);

  /// Before it is submitted, by the thread that does so: settles what depends on the size of the
  /// process set, and looks for what makes the call wrong on this rank alone.
  void Settle(size_t set_size);

  const Submission& submission() const { return submission_; }
  const Signature& signature() const { return signature_; }
  Generation generation() const { return generation_; }
  /// Not empty: why this call cannot be right, whatever the other ranks do.
  const std::string& objection() const { return objection_; }
  /// What the rank asks the coordinator for.
  FullRequest Request() const;
  /// The data, if it is small enough to ride on the request and somebody waits for it; else empty.
  std::string Small() const;

  /// True if callbacks wait to be run, on the executor's thread.
  [[nodiscard]] bool Complete(std::exception_ptr error, int64_t value = 0);
  void RunCallbacks() { operation_->RunCallbacks(); }

  /// Allreduces up to this size ride on the request.
  static constexpr size_t kSmallBytesMax = 4096;

 private:
  Submission submission_;
  Signature signature_;
  std::string objection_;
  const Generation generation_;
  const bool reusable_;
  const std::shared_ptr<Operation> operation_;  // Shared with the user's handles.
  CallBook& book_;
};

/// Why this rank's call cannot be right, whatever the other ranks do; empty: nothing.
std::string FindObjection(const Submission& submission, size_t set_size);

}  // namespace muster::worker
