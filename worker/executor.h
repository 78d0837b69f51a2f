#pragma once

// Executor: one thread that runs jobs in the order in which they were posted: the logged
// operations and the callbacks of handles. What a job does, and when it gives up, is the job's
// business.
//
// Threads: Post from any; Start and Stop from the owner.

#include <deque>
#include <functional>
#include <thread>

#include "common/mutex.h"

namespace muster::worker {

class Executor {
 public:
  using Job = std::function<void()>;

  ~Executor();

  void Start();
  /// Runs what was posted and ends; the owner sees to it that no job waits for ever. Called by a
  /// job it does not wait for the end, and the owner stays.
  void Stop();
  void Post(Job job);

 private:
  void Run();

  Mutex mutex_;
  CondVar posted_;
  std::deque<Job> jobs_ MUSTER_GUARDED_BY(mutex_);
  bool stop_ MUSTER_GUARDED_BY(mutex_) = false;
  std::jthread thread_;
};

}  // namespace muster::worker
