#pragma once

// Reaper: the first process of an agent. It has one thread and no gRPC, holds no state that could
// be lost, and does three things: it passes SIGTERM on to the agent proper; it gives the agent
// proper a second to end when the driver is gone; and when the agent proper has ended, however,
// it kills everything that is left of this host's part of the job.

#include <sys/types.h>

#include <string>

#include "common/clock.h"
#include "common/unique_fd.h"
#include "launcher/agent/process_scan.h"

namespace muster::launcher {

class Reaper {
 public:
  /// `agent` is a child of the caller; `signals` a signalfd of SIGCHLD, SIGTERM and SIGHUP.
  Reaper(pid_t agent, UniqueFd signals, SweepTarget target, std::string directory);

  /// Blocks until everything has ended; gives the agent's exit code, or 128 + signal.
  int Run();

 private:
  bool Step();
  void OnSignals();
  void OnDriverGone();
  void KillLateAgent();

  const pid_t agent_;
  const UniqueFd agent_pidfd_;
  const UniqueFd signals_;
  const SweepTarget target_;
  const std::string directory_;
  bool driver_gone_ = false;
  Instant agent_deadline_;  // Once the driver is gone.
};

}  // namespace muster::launcher
