#pragma once

// AliveWatch: notices within microseconds that the owner of a page's robust mutex died or unlocked
// it. One thread waits on up to 127 mutex words at once (futex_waitv, Linux 5.16; a thread each
// where that is missing); more pages get more threads. It judges nothing: an unlock is a goodbye,
// a dead owner is a process that is dying, and both are told once per page.
//
// Threads: Add and Remove from one thread, the owner's. `ended` is called on a watch thread and
// must not call back into the watch or block. A Remove may cross with a call that is under way.

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "launcher/agent/shared_page.h"

namespace muster::launcher {

class AliveWatch {
 public:
  /// `state` is kOwnerDied or kUnlocked.
  using Ended = std::function<void(uint64_t key, AliveState state)>;

  explicit AliveWatch(Ended ended, bool use_futex_waitv = true);
  ~AliveWatch();
  AliveWatch(const AliveWatch&) = delete;
  AliveWatch& operator=(const AliveWatch&) = delete;

  /// The mutex should be held by now; one that is not is told at once. `page` is shared because a
  /// watch thread may read it while its owner drops it.
  void Add(uint64_t key, std::shared_ptr<SharedPage> page);
  void Remove(uint64_t key);

 private:
  class Group;

  Ended ended_;
  size_t pages_per_thread_;
  std::vector<std::unique_ptr<Group>> groups_;
};

}  // namespace muster::launcher
