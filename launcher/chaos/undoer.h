#pragma once

// Undoer: undoes what chaos does, in time, on a thread of its own. A pause must end although the
// loop waits for a terminal that takes nothing, a disk, or a process that holds up who reads its
// memory map. Any thread.

#include <functional>
#include <map>
#include <thread>

#include "common/clock.h"
#include "common/mutex.h"

namespace muster::launcher {

class Undoer {
 public:
  Undoer();
  /// Undoes what is left.
  ~Undoer();
  Undoer(const Undoer&) = delete;
  Undoer& operator=(const Undoer&) = delete;

  /// Calls `undo` at `when`, or at once after UndoAll. It must not block.
  void At(Instant when, std::function<void()> undo);
  /// What is left is due, and whatever still comes.
  void UndoAll();

 private:
  void Run();

  Mutex mutex_;
  CondVar changed_;
  std::multimap<Instant, std::function<void()>> left_ MUSTER_GUARDED_BY(mutex_);
  bool all_due_ MUSTER_GUARDED_BY(mutex_) = false;
  bool stop_ MUSTER_GUARDED_BY(mutex_) = false;
  std::jthread thread_;  // Last: it uses all the others.
};

}  // namespace muster::launcher
