#pragma once

// GroupGuard: a helper process that kills process groups if this process dies, however it dies, so
// that a hanging discovery script or remote shell does not outlive a driver that was killed. It is
// not what ends a group in the ordinary way: that is its owner's work.
//
// Thread contract: one thread at a time.

#include <sys/types.h>

#include <string>

#include "common/process.h"
#include "common/unique_fd.h"

namespace muster::discovery {

class GroupGuard {
 public:
  /// Starts the helper. Without one (no processes left, say) the guard does nothing.
  GroupGuard();
  ~GroupGuard();
  GroupGuard(const GroupGuard&) = delete;
  GroupGuard& operator=(const GroupGuard&) = delete;

  /// From now on this group too.
  void Guard(pid_t group) { Tell("add " + std::to_string(group)); }
  /// Call it while the group's leader is not yet reaped, or its number may be somebody else's.
  void Forget(pid_t group) { Tell("drop " + std::to_string(group)); }

 private:
  void Tell(const std::string& line);

  SpawnedProcess helper_;
  UniqueFd lifeline_;  // Its end at the helper means that this process is gone.
};

}  // namespace muster::discovery
