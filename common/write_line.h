#pragma once

// WriteLine: what a process says on a descriptor just before it ends. Not for logs.
//
// Any thread. It takes no lock: one that a stuck thread holds (as stdio's) must keep nobody from
// ending.

#include <string>

#include "common/clock.h"

namespace muster {

/// One write, which waits for at most `patience`: at the other end may be a link that was cut, or a
/// terminal that takes nothing. A line that cannot be written is lost; a long one is cut.
void WriteLine(int fd, const std::string& text, Duration patience);

}  // namespace muster
