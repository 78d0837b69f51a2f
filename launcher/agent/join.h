#pragma once

// What `muster agent --join` knows by itself and other agents are told on standard input. Reads the
// secret's file and the machine's name; no thread.

#include "common/status.h"
#include "launcher/cli/join_options.h"
#include "muster/v1/agents.pb.h"

namespace muster::launcher {

/// The job's id is the agent's own: it only marks its workers. kInvalid: the secret or the host's
/// name will not do.
Result<v1::AgentBootstrap> MakeJoinBootstrap(const JoinOptions& options);

}  // namespace muster::launcher
