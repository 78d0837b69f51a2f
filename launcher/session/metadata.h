#pragma once

// The metadata that every call of an agent carries.

namespace muster::launcher {

inline constexpr const char* kSecretKey = "muster-secret";    // The job's.
inline constexpr const char* kSessionKey = "muster-session";  // AgentHello.session.

}  // namespace muster::launcher
