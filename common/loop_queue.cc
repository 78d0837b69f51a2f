// What a loop has been asked to do: posted closures and timers. How it waits is in loop.cc.

#include "common/loop.h"

namespace muster {

void Loop::Stop() {
  {
    const MutexLock lock(mutex_);
    stop_asked_ = true;
  }
  Wake();
}

void Loop::Post(Callback callback) {
  {
    const MutexLock lock(mutex_);
    posted_.push_back(std::move(callback));
  }
  Wake();
}

void Loop::Cancel(TimerId timer) {
  const auto it = timer_due_.find(timer.value);
  if (it == timer_due_.end()) {
    return;
  }
  timers_.erase({it->second, timer.value});
  timer_due_.erase(it);
}

void Loop::RunTimers() {
  const Instant now = Now();
  while (!timers_.empty() && timers_.begin()->first.first <= now) {
    auto node = timers_.extract(timers_.begin());
    timer_due_.erase(node.key().second);
    node.mapped()();
  }
}

void Loop::RunPosted() {
  std::vector<Callback> batch;
  bool stop_asked = false;
  {
    const MutexLock lock(mutex_);
    batch.swap(posted_);
    stop_asked = stop_asked_;
  }
  for (Callback& callback : batch) {
    callback();
  }
  stop_ = stop_ || stop_asked;
}

}  // namespace muster
