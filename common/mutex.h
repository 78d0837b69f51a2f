#pragma once

// std::mutex with clang's thread-safety annotations: clang 14 refuses GUARDED_BY on the
// std::mutex of libstdc++. Members name their mutex with MUSTER_GUARDED_BY.

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define MUSTER_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define MUSTER_THREAD_ANNOTATION(x)
#endif
#define MUSTER_GUARDED_BY(x) MUSTER_THREAD_ANNOTATION(guarded_by(x))
#define MUSTER_REQUIRES(...) MUSTER_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
// For the rare function whose locking the analysis cannot follow; say why beside it.
#define MUSTER_NO_THREAD_SAFETY_ANALYSIS MUSTER_THREAD_ANNOTATION(no_thread_safety_analysis)
#define MUSTER_EXCLUDES(...) MUSTER_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))

namespace muster {

class MUSTER_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  /// Tries for about a microsecond before it sleeps: sections are short, and a sleep costs ten.
  void lock() MUSTER_THREAD_ANNOTATION(acquire_capability()) {
    for (int i = 0; i < 40; ++i) {
      if (mutex_.try_lock()) {
        return;
      }
      Pause();
    }
    mutex_.lock();
  }
  void unlock() MUSTER_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }
  /// Tells the analysis what it cannot see: that a callback runs under the mutex.
  void AssertHeld() const MUSTER_THREAD_ANNOTATION(assert_capability(this)) {}

 private:
  friend class CondVar;

  static void Pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb");
#endif
  }

  std::mutex mutex_;
};

class MUSTER_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) MUSTER_THREAD_ANNOTATION(acquire_capability(mutex))
      : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() MUSTER_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

/// Waits are loops in the caller: `while (!condition) cv.Wait(mutex);`.
class CondVar {
 public:
  void Wait(Mutex& mutex) MUSTER_REQUIRES(mutex) {
    Borrowed lock(mutex.mutex_);
    cv_.wait(lock.held);
  }
  /// False when the deadline passed.
  template <class Rep, class Period>
  bool WaitFor(Mutex& mutex, std::chrono::duration<Rep, Period> timeout) MUSTER_REQUIRES(mutex) {
    Borrowed lock(mutex.mutex_);
    return cv_.wait_for(lock.held, timeout) == std::cv_status::no_timeout;
  }
  template <class Clock, class Duration>
  bool WaitUntil(Mutex& mutex, std::chrono::time_point<Clock, Duration> deadline)
      MUSTER_REQUIRES(mutex) {
    Borrowed lock(mutex.mutex_);
    return cv_.wait_until(lock.held, deadline) == std::cv_status::no_timeout;
  }
  void NotifyAll() { cv_.notify_all(); }
  void NotifyOne() { cv_.notify_one(); }

 private:
  /// The caller's lock, as the condition variable wants it.
  struct Borrowed {
    explicit Borrowed(std::mutex& mutex) : held(mutex, std::adopt_lock) {}
    ~Borrowed() { held.release(); }
    Borrowed(const Borrowed&) = delete;
    Borrowed& operator=(const Borrowed&) = delete;
    std::unique_lock<std::mutex> held;
  };

  std::condition_variable cv_;
};

}  // namespace muster
