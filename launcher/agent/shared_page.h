#pragma once

// SharedPage: the agent's side of one worker's page (common/worker_page.h): a sealed memfd, its
// mapping, and the robust mutex in it. The worker may write anything into it, so it is only read
// through the atomics here. Thread-safe.

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "common/status.h"
#include "common/unique_fd.h"
#include "common/worker_page.h"

namespace muster::launcher {

/// What the word of the robust mutex says.
enum class AliveState : uint8_t {
  kUnlocked,   // Not locked yet, or unlocked on purpose.
  kHeld,       // By a living thread.
  kOwnerDied,  // The kernel found the owner dead.
};

class SharedPage {
 public:
  static Result<std::shared_ptr<SharedPage>> Create();
  ~SharedPage();
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;

  int fd() const { return fd_.get(); }
  AliveState state() const;
  uint64_t ticks() const { return page_->ticks.load(std::memory_order_relaxed); }

  /// The thread that holds the mutex, as its own PID namespace numbers it; 0: none.
  pid_t owner() const;
  /// The futex word of the mutex.
  uint32_t* word() const;
  /// Marks the word so that the kernel wakes waiters when the owner dies or unlocks; gives the
  /// value to wait for, or 0 if the mutex is not held by a living thread.
  uint32_t PrepareWait() const;

 private:
  SharedPage(UniqueFd fd, WorkerPage* page) : fd_(std::move(fd)), page_(page) {}

  UniqueFd fd_;
  WorkerPage* page_;
};

}  // namespace muster::launcher
