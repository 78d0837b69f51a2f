#pragma once

// One line of a trace (docs/trace.md), as far as the bench looks at it. No state.

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "common/status.h"

namespace muster::bench {

struct TraceEvent {
  std::string kind;  // "step", "lost", "reaped", ...
  int64_t t_ns = 0;
  uint64_t generation = 0;
  uint64_t incarnation = 0;  // 0: no worker is concerned.
  pid_t pid = -1;            // Of whoever wrote the line.
  int rank = -1;
  int size = 0;
  int signal = 0;     // `reaped` only; 0: it exited by itself.
  std::string cause;  // `finish` only.
};

Result<TraceEvent> ParseTraceEvent(std::string_view line);

}  // namespace muster::bench
