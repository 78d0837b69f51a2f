#pragma once

// JoinOptions: `muster agent --join`, an agent that nobody started through a remote shell. A value.

#include <cstdint>
#include <string>
#include <vector>

#include "common/clock.h"

namespace muster::launcher {

struct JoinOptions {
  std::vector<std::string> drivers;  // Address literals with a port; not empty.
  uint32_t slots = 1;
  std::string host;  // --host; empty: this machine's name.
  /// How long to wait for a driver that takes this agent.
  Duration timeout = std::chrono::seconds(300);
  std::vector<std::string> interfaces;  // As NetworkOptions has them.
  std::string log_level;                // As InitLog takes it; never empty.
  std::string secret_file;              // Never empty.
};

}  // namespace muster::launcher
