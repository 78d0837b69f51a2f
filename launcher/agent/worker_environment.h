#pragma once

// The environment of one worker: the job's, with the worker's own variables on top. Pure.

#include <string>
#include <vector>

#include "common/ids.h"
#include "muster/v1/agents.pb.h"

namespace muster::launcher {

/// "1" in the job's environment: workers may dump core, within the limits of their host. While one
/// does its loss shows only as silence, which cuts a dump of more than 5 s short.
inline constexpr const char* kEnvCoreDumps = "MUSTER_CORE_DUMPS";

struct WorkerIdentity {
  std::string host;
  std::string job;
  std::string directory;  // Of the agent's sockets.
  std::string key;
  Incarnation incarnation;
  uint32_t slot = 0;
  std::vector<std::string> listen;  // Literals with port 0; empty: loopback.
};

/// "NAME=value", sorted, each name once.
std::vector<std::string> WorkerEnvironment(const v1::Welcome& job,
                                           const WorkerIdentity& worker,
                                           const v1::Placement& provisional);

}  // namespace muster::launcher
