#pragma once

// Reads what the driver hands to an agent on standard input: four bytes of length, little-endian,
// then an AgentBootstrap. These are bytes from outside: every length is checked before use.
// No thread; blocks up to the deadline.

#include <chrono>

#include "common/status.h"
#include "muster/v1/agents.pb.h"

namespace muster::launcher {

inline constexpr size_t kBootstrapBytesMax = 64 * 1024;

/// `fd` stays open; not a byte past the bootstrap is read. kTimeout when the deadline passed.
Result<v1::AgentBootstrap> ReadBootstrap(int fd, std::chrono::milliseconds timeout);

/// The same bytes, for those who start an agent.
std::string EncodeBootstrap(const v1::AgentBootstrap& bootstrap);

}  // namespace muster::launcher
