#pragma once

// The full fence by which a rank that has changed something and a rank that goes to sleep over it
// see each other: each writes, fences, and then reads what the other wrote.

#include <atomic>

namespace muster::worker {

// ThreadSanitizer knows no fences, and g++ says so. It needs none here: data is handed over by
// release and acquire alone, fences only decide who is woken.
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif
inline void FullFence() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
}
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

}  // namespace muster::worker
