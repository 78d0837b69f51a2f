#include "worker/executor.h"

#include <utility>

#include "worker/thread.h"

namespace muster::worker {

Executor::~Executor() {
  Stop();
}

void Executor::Start() {
  thread_ = StartThread("muster-exec", [this] { Run(); });
}

void Executor::Stop() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
    posted_.NotifyAll();
  }
  // A job may end the process: exit() in a callback runs the exit handlers right there.
  if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id()) {
    thread_.join();
  }
}

void Executor::Post(Job job) {
  const MutexLock lock(mutex_);
  jobs_.push_back(std::move(job));
  posted_.NotifyOne();
}

void Executor::Run() {
  for (;;) {
    Job job;
    {
      const MutexLock lock(mutex_);
      while (jobs_.empty()) {
        if (stop_) {
          return;
        }
        posted_.Wait(mutex_);
      }
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

}  // namespace muster::worker
