#pragma once

// JobSignals: the signals that reach the driver, as callbacks on its loop. What they mean is the
// driver's decision.
//
// Threads: the loop's.

#include <functional>

#include "common/loop.h"
#include "common/status.h"
#include "common/unique_fd.h"

namespace muster::launcher {

class JobSignals {
 public:
  /// Blocks SIGINT, SIGTERM, SIGHUP (unless ignored), SIGUSR1 and SIGUSR2 for a signalfd and
  /// ignores SIGPIPE. Call it before any thread is started.
  static void Block();

  /// `loop` outlives it.
  explicit JobSignals(Loop& loop);
  ~JobSignals();
  JobSignals(const JobSignals&) = delete;
  JobSignals& operator=(const JobSignals&) = delete;

  /// Calls back for each blocked signal that comes.
  Status Watch(std::function<void(int signal)> callback);

 private:
  void Read();

  Loop& loop_;
  std::function<void(int signal)> callback_;
  UniqueFd signals_;
};

}  // namespace muster::launcher
