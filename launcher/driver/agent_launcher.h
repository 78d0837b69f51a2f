#pragma once

// AgentLauncher: starts `muster agent` for a host and hands it its bootstrap. Here: hosts of this
// machine, by fork and exec. The child's standard input carries the bootstrap and stays open as
// the lifeline.
//
// Used on the loop thread; Start does not block.

#include <memory>
#include <string>

#include "common/ids.h"
#include "common/process.h"
#include "common/status.h"
#include "muster/v1/agents.pb.h"

namespace muster::launcher {

struct LaunchedAgent {
  SpawnedProcess process;
  UniqueFd lifeline;  // Closing it ends the agent and everything that it started.
};

class AgentLauncher {
 public:
  virtual ~AgentLauncher() = default;
  virtual Result<LaunchedAgent> Start(const v1::AgentBootstrap& bootstrap) = 0;
};

/// Starts agents from this very executable.
class LocalAgentLauncher final : public AgentLauncher {
 public:
  Result<LaunchedAgent> Start(const v1::AgentBootstrap& bootstrap) override;
};

/// True if the name means this machine without asking a name server: a loopback name or literal,
/// the machine's own name, or the literal of an address of one of its interfaces.
bool IsLocalHost(const HostId& host);

}  // namespace muster::launcher
