#pragma once

// Runs a loop until what lies in its sockets has been dealt with. Not a wait: all of it is there
// already, and what a turn writes is there for the next.
//
// Threads: the loop's.

#include "common/loop.h"

namespace muster::fuzz {

inline void TakeTurns(Loop& loop, int turns) {
  for (int turn = 0; turn < turns; ++turn) {
    loop.Stop();
    loop.Run();
  }
}

}  // namespace muster::fuzz
