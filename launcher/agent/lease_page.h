#pragma once

// LeasePage: a word of memory that the two processes of an agent across a network share. The agent
// proper writes until when its lease runs; the reaper ends it when it has not kept to that itself,
// because it is stopped or hangs.
//
// Threads: one writer, one reader.

#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "common/clock.h"

namespace muster::launcher {

class LeasePage {
 public:
  /// Make it before the fork. Without memory for it nothing is shared, and nothing checked.
  LeasePage() {
    void* page = ::mmap(nullptr,
                        sizeof(std::atomic<int64_t>),
                        PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS,
                        -1,
                        0);
    end_ = page == MAP_FAILED ? nullptr : new (page) std::atomic<int64_t>(0);
  }
  LeasePage(const LeasePage&) = delete;
  LeasePage& operator=(const LeasePage&) = delete;
  ~LeasePage() = default;  // The page goes with the processes.

  /// Of the clock that BootClock reads.
  void Write(Instant end) {
    if (end_ != nullptr) {
      end_->store(end.time_since_epoch().count());
    }
  }
  /// Nothing: no lease has begun.
  std::optional<Instant> Read() const {
    const int64_t end = end_ == nullptr ? 0 : end_->load();
    return end == 0 ? std::nullopt : std::optional<Instant>(Duration(end));
  }

 private:
  std::atomic<int64_t>* end_ = nullptr;
};
static_assert(std::atomic<int64_t>::is_always_lock_free);

}  // namespace muster::launcher
