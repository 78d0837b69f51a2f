#pragma once

// The processor time that another process has used so far, all its threads. No state.

#include <sys/types.h>

#include <cstdint>

#include "common/status.h"

namespace muster::bench {

struct CpuTime {
  int64_t total_ns = 0;  // By the scheduler, exact: /proc/PID/task/*/schedstat.
  double user_s = 0;     // By the tick of the clock: /proc/PID/stat.
  double system_s = 0;
};
/// Threads that have ended count in user and system only.
Result<CpuTime> CpuTimeOf(pid_t pid);

}  // namespace muster::bench
