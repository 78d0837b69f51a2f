#pragma once

// Secrets: random keys, HMAC-SHA256, comparison in constant time. Over OpenSSL's libcrypto.
// Thread-safe: no state.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "common/status.h"

namespace muster {

using Digest = std::array<uint8_t, 32>;

/// `bytes` random bytes from the system, as lower-case hex (2 * bytes characters).
std::string RandomHex(size_t bytes);

/// HMAC-SHA256 (RFC 2104) of the message under the key.
Digest HmacSha256(std::string_view key, std::string_view message);

/// True if both are equal; the time depends on the lengths only.
bool EqualInConstantTime(std::string_view a, std::string_view b);

}  // namespace muster
