#pragma once

// The directory, mode 0700, that holds an agent's two sockets. Made before the fork and removed by
// the reaper, so that it goes also when the agent proper is killed. No thread.

#include <string>

#include "common/status.h"

namespace muster::launcher {

/// In $XDG_RUNTIME_DIR, $TMPDIR or /tmp: the first that exists, is writable, and whose name leaves
/// room for a socket (108 bytes in all).
Result<std::string> MakeSocketDirectory();

/// Removes the sockets and the directory, nothing else.
void RemoveSocketDirectory(const std::string& directory);

}  // namespace muster::launcher
