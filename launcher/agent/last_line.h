#pragma once

// WriteLine: what an agent's process says on a descriptor just before it ends. Not for logs.
//
// Any thread.

#include <string>

namespace muster::launcher {

/// One write, which waits for at most a second: at the other end may be a link that was cut. A line
/// that cannot be written is lost.
void WriteLine(int fd, const std::string& text);

}  // namespace muster::launcher
