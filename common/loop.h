#pragma once

// Loop: one thread that owns a daemon's state. Other threads Post closures to it; file
// descriptors and timers call back on it. It never blocks except in epoll_wait.
//
// Thread contract: Post and Stop from any thread, also after Run has returned (then the
// closure is dropped). Everything else on the loop thread, or before Run starts.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/mutex.h"
#include "common/unique_fd.h"

namespace muster {

class Loop {
 public:
  using Callback = std::function<void()>;
  using FdCallback = std::function<void(uint32_t epoll_events)>;
  struct TimerId {
    uint64_t value = 0;  // 0 is no timer.
  };

  Loop();
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  /// Runs until Stop. Closures posted before Stop still run. May be called again after it returned.
  void Run();
  void Stop();
  void Post(Callback callback);

  /// Watches fd for EPOLLIN and so on; the caller keeps owning the fd and must Unwatch it
  /// before closing it. Unwatch inside the callback is allowed.
  void Watch(int fd, uint32_t epoll_events, FdCallback callback);
  void Modify(int fd, uint32_t epoll_events);
  void Unwatch(int fd);

  /// Calls back once, `delay` from now (at the earliest).
  TimerId After(Duration delay, Callback callback);
  void Cancel(TimerId timer);

  Instant Now() const { return clock_.Now(); }
  bool OnLoopThread() const { return thread_ == std::this_thread::get_id(); }

 private:
  void Control(int operation, int fd, uint32_t epoll_events, uint32_t number);
  void RunPosted();
  void RunTimers();
  int WaitMilliseconds();
  void Wake();

  SteadyClock clock_;
  UniqueFd epoll_;
  UniqueFd wake_;  // eventfd
  std::thread::id thread_;
  bool stop_ = false;
  uint64_t next_timer_ = 1;
  std::map<std::pair<Instant, uint64_t>, Callback> timers_;
  std::map<uint64_t, Instant> timer_due_;
  // The number tells a watch from an earlier one of the same descriptor's number: events that
  // epoll gave out before that was closed and opened anew, in the same round, are not the new
  // one's.
  struct Watched {
    uint32_t number = 0;
    // shared_ptr: a callback that unwatches its own fd must outlive its own call.
    std::shared_ptr<FdCallback> callback;
  };
  uint32_t next_watch_ = 1;
  std::map<int, Watched> watched_;

  Mutex mutex_;
  std::vector<Callback> posted_ MUSTER_GUARDED_BY(mutex_);
  bool stop_asked_ MUSTER_GUARDED_BY(mutex_) = false;
};

}  // namespace muster
