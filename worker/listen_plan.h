#pragma once

// ListenPlan: where a worker listens from its start on. A value, read from the environment that the
// agent gave (common/worker_page.h); no sockets.

#include <string>
#include <string_view>
#include <vector>

#include "common/network.h"
#include "common/status.h"

namespace muster::worker {

struct ListenPlan {
  std::vector<std::string> hosts;  // Host literals; empty: loopback, IPv4 or else IPv6.
  PortRange ports;                 // For every listener, also those that are ordered later.
};

/// `listen` as MUSTER_LISTEN has it, `ports` as MUSTER_PORT_RANGE; both may be empty.
Result<ListenPlan> ReadListenPlan(std::string_view listen, std::string_view ports);

}  // namespace muster::worker
