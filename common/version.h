#pragma once

// Versions that travel: an agent or worker of another protocol is refused with a sentence.

#include <cstdint>

namespace muster {

inline constexpr uint32_t kProtocolVersion = 3;
inline constexpr const char* kVersion = "0.1.0";

}  // namespace muster
