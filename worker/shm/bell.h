#pragma once

// Bell: where one rank is woken by the others of its host, in memory that they share. The rank
// looks at what it waits for (flags of peers, rings) itself; the bell only ends its sleep.
//
// At most one thread of a rank waits at a time, the one that drives its session. While nobody
// does, the rank is away, and a message for it needs a call by other means (RingOrCall).
//
// Threads: Ring and RingOrCall from any thread of any process; the rest from the driving thread.

#include <atomic>
#include <chrono>
#include <cstdint>

#include "worker/shm/fence.h"

namespace muster::worker {

enum class BellState : uint32_t {
  kAway,    // Nobody waits or will look. Zero, so that fresh memory is right.
  kCalled,  // As above, and somebody has been told to look.
  kAwake,   // Somebody is driving, and looks before sleeping.
  kAsleep,  // Somebody sleeps on `rings`.
};

struct BellWord {
  std::atomic<uint32_t> rings;  // A futex.
  std::atomic<BellState> state;
};
static_assert(std::atomic<BellState>::is_always_lock_free);

/// How long to look before sleeping. A sleep and a wake-up cost some 10 us on both sides.
struct Patience {
  int looks = 0;   // Before each yield, with pauses; only sensible where every rank has a core.
  int yields = 0;  // Giving way to whoever shares the core.
  /// A yield that took longer is the last one. Where ranks share cores, whoever ran meanwhile is no
  /// rank of ours, and sleepers get the core back sooner. Where each has one, another rank may be
  /// on ours, and a sleeper is woken where a core is free.
  std::chrono::microseconds yield_max{1000};
};

/// For `ranks` ranks on this machine.
Patience PatienceFor(int ranks);

class Bell {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  /// `word` outlives the bell.
  explicit Bell(BellWord& word) : word_(&word) {}

  /// After a change that the rank may be waiting for: ends its sleep, if it sleeps.
  void Ring() {
    FullFence();
    RingAfterFence();
  }
  /// The same for a caller that has put a FullFence() behind the change: one for many bells.
  void RingAfterFence() {
    if (word_->state.load(std::memory_order_relaxed) == BellState::kAsleep) {
      WakeUp();
    }
  }
  /// The same for a message that must not lie unread: true if nobody is there, and the caller has
  /// to call somebody.
  [[nodiscard]] bool RingOrCall();

  void Enter() { word_->state.store(BellState::kAwake, std::memory_order_seq_cst); }
  /// From here on messages call. What came in just before is not called for: look once more.
  void Leave() {
    word_->state.store(BellState::kAway, std::memory_order_seq_cst);
    FullFence();
  }

  /// Waits until `ready()`, looking as often as `patience` says and then each time it is rung;
  /// false if that is not so at the deadline.
  template <class Ready>
  bool Wait(const Patience& patience, Deadline deadline, const Ready& ready) {
    hasty_ -= hasty_ > 0 ? 1 : 0;
    for (int i = 0; i < patience.yields && hasty_ == 0; ++i) {
      for (int look = 0; look < patience.looks; ++look) {
        if (ready()) {
          return true;
        }
        Pause();
      }
      if (ready()) {
        return true;
      }
      if (Yield(patience.yield_max)) {
        continue;
      }
      if (patience.looks > 0) {
        break;
      }
      hasty_ = kHastyWaits;
    }
    for (;;) {
      const uint32_t seen = word_->rings.load(std::memory_order_acquire);
      word_->state.store(BellState::kAsleep, std::memory_order_seq_cst);
      FullFence();
      const bool done = ready();
      const bool in_time = done || Sleep(seen, deadline);
      word_->state.store(BellState::kAwake, std::memory_order_seq_cst);
      if (done || ready()) {
        return true;
      }
      if (!in_time) {
        return false;
      }
    }
  }

 private:
  static void Pause();
  /// False: it took longer than `most`.
  static bool Yield(std::chrono::microseconds most);
  void WakeUp();
  /// False: the deadline has passed.
  bool Sleep(uint32_t seen, Deadline deadline);

  /// After a yield to somebody else so many waits do without: each would cost a slice of the
  /// scheduler's, while a sleeper that is woken gets the core at once.
  static constexpr int kHastyWaits = 200;

  BellWord* word_;
  int hasty_ = 0;  // Waits left that do without yields.
};

}  // namespace muster::worker
