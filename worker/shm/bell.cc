#include "worker/shm/bell.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace muster::worker {
namespace {

uint32_t* FutexOf(std::atomic<uint32_t>& word) {
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
  return reinterpret_cast<uint32_t*>(&word);
}

/// A rank gives the core back within a chunk, tenths of a millisecond; others keep it for a slice
/// of the scheduler's, some 3 ms.
constexpr std::chrono::milliseconds kYieldAmongRanks{1};
/// To nobody it takes a third of a microsecond.
constexpr std::chrono::microseconds kYieldAlone{3};

int CoreCount() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  return ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

}  // namespace

// A look with its pause is some 20 to 45 ns, a yield between ranks that share a core 1 to 2 us.
// Even where every rank has a core the scheduler may put two on one: without a yield each would
// look in vain until it sleeps, for the other cannot run.
Patience PatienceFor(int ranks) {
  return ranks <= CoreCount() ? Patience{100, 20, kYieldAlone} : Patience{0, 60, kYieldAmongRanks};
}

// The fence orders the caller's change before the look at the state, as the waiter orders the state
// before its last look at what it waits for: one of the two sees the other.
void Bell::WakeUp() {
  word_->rings.fetch_add(1, std::memory_order_seq_cst);
  ::syscall(SYS_futex, FutexOf(word_->rings), FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

bool Bell::RingOrCall() {
  Ring();
  BellState away = BellState::kAway;
  return word_->state.compare_exchange_strong(away, BellState::kCalled, std::memory_order_seq_cst);
}

void Bell::Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");
#endif
}

bool Bell::Yield(std::chrono::microseconds most) {
  const auto begin = std::chrono::steady_clock::now();
  ::sched_yield();
  return std::chrono::steady_clock::now() - begin < most;
}

bool Bell::Sleep(uint32_t seen, Deadline deadline) {
  const auto since =
      std::max(std::chrono::nanoseconds(0),
               std::chrono::duration_cast<std::chrono::nanoseconds>(deadline.time_since_epoch()));
  const timespec until{static_cast<time_t>(since.count() / 1'000'000'000),
                       static_cast<long>(since.count() % 1'000'000'000)};
  // Absolute, on CLOCK_MONOTONIC, which is the steady clock's.
  const long result = ::syscall(SYS_futex,
                                FutexOf(word_->rings),
                                FUTEX_WAIT_BITSET,
                                seen,
                                &until,
                                nullptr,
                                FUTEX_BITSET_MATCH_ANY);
  // EAGAIN: rung since; EINTR: a signal's handler ran.
  return result == 0 || errno == EAGAIN || errno == EINTR;
}

}  // namespace muster::worker
