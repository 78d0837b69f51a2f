#pragma once

// Reaper: the first process of an agent. It has one thread and no gRPC, holds no state that could
// be lost, and does three things: it passes SIGTERM on to the agent proper; on the driver's machine
// it gives the agent proper a second to end when the driver is gone; and when the agent proper has
// ended, however, it kills everything that is left of this host's part of the job.

#include <sys/types.h>

#include <string>

#include "common/clock.h"
#include "common/unique_fd.h"
#include "launcher/agent/lease_page.h"
#include "launcher/agent/process_scan.h"

namespace muster::launcher {

struct ReaperOptions {
  pid_t agent = -1;  // A child of the caller.
  SweepTarget target;
  std::string directory;      // Of the sockets; removed at the end.
  bool has_lifeline = false;  // The end of standard input means that the driver is gone.
  /// Written to standard output as a line of its own once everything is gone, and only then.
  std::string farewell;
};

class Reaper {
 public:
  /// `signals` is a signalfd: of SIGCHLD and of those that ask the agent to leave.
  Reaper(ReaperOptions options, const LeasePage& lease, UniqueFd signals);

  /// Blocks until everything has ended; gives the agent's exit code, or 128 + signal.
  int Run();

 private:
  bool Step();
  void OnSignals();
  void OnInterrupt();
  void OnDriverGone();
  void KillLateAgent();
  bool LeaseIsOver() const;
  void SweepAndLeave();

  const ReaperOptions options_;
  const LeasePage& lease_;
  const UniqueFd agent_pidfd_;
  const UniqueFd signals_;
  bool interrupted_ = false;
  bool driver_gone_ = false;
  Instant agent_deadline_;  // Once the driver is gone.
};

}  // namespace muster::launcher
