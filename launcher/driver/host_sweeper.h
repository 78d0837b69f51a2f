#pragma once

// HostSweeper: ends what is left on this machine of a lost local agent's workers. That reads all of
// /proc, hence not on the loop thread.
//
// Threads: Start and the destructor on the loop thread; the destructor waits for sweeps under way,
// each of which ends within its patience.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "common/ids.h"
#include "common/loop.h"

namespace muster::launcher {

class HostSweeper {
 public:
  /// `loop` outlives it.
  HostSweeper(Loop& loop, std::string job);
  ~HostSweeper();
  HostSweeper(const HostSweeper&) = delete;
  HostSweeper& operator=(const HostSweeper&) = delete;

  /// Kills all that carries the job's and this host's marks, until nothing is left or the patience
  /// is over; then calls back on the loop.
  void Start(const HostId& host, std::function<void()> done);
  /// Waits for the sweeps under way. Those may still call back, if the loop runs on.
  void Stop();

 private:
  Loop& loop_;
  const std::string job_;
  uint64_t last_ = 0;
  std::map<uint64_t, std::jthread> sweeps_;
};

}  // namespace muster::launcher
