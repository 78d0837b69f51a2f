#include "launcher/chaos/undoer.h"

#include <pthread.h>
#include <sys/resource.h>

#include <utility>

namespace muster::launcher {
namespace {

// Due in time although the machine is busy. Where that is not allowed it is as it is.
void PutThisThreadFirst() {
  constexpr int kNice = -10;
  ::setpriority(PRIO_PROCESS, 0, kNice);
}

}  // namespace

Undoer::Undoer() : thread_([this] { Run(); }) {}

Undoer::~Undoer() {
  {
    const MutexLock lock(mutex_);
    all_due_ = true;
    stop_ = true;
  }
  changed_.NotifyAll();
}

void Undoer::At(Instant when, std::function<void()> undo) {
  {
    const MutexLock lock(mutex_);
    left_.emplace(when, std::move(undo));
  }
  changed_.NotifyAll();
}

void Undoer::UndoAll() {
  {
    const MutexLock lock(mutex_);
    all_due_ = true;
  }
  changed_.NotifyAll();
}

void Undoer::Run() {
  ::pthread_setname_np(::pthread_self(), "undoer");
  PutThisThreadFirst();
  const SteadyClock clock;
  while (true) {
    std::function<void()> undo;
    {
      const MutexLock lock(mutex_);
      while (left_.empty() && !stop_) {
        changed_.Wait(mutex_);
      }
      if (left_.empty()) {
        return;
      }
      const Instant when = left_.begin()->first;
      if (!all_due_ && when > clock.Now()) {
        changed_.WaitUntil(mutex_, when);
        continue;  // Something else may be due first by now.
      }
      undo = std::move(left_.begin()->second);
      left_.erase(left_.begin());
    }
    undo();
  }
}

}  // namespace muster::launcher
