#pragma once

// Reads the job's secret from a file: of an agent that dials in, and of the driver that waits for
// such agents. Otherwise the driver makes a secret up. Thread-safe: no state; reads a local file.

#include <cstddef>
#include <string>

#include "common/status.h"

namespace muster::launcher {

inline constexpr size_t kSecretCharactersMin = 16;
inline constexpr size_t kSecretFileBytesMax = 4096;

/// The one line of the file, without its end. Refused, with a remedy in the message: what is no
/// regular file, too short or too long, holds anything but printable ASCII without blanks (it
/// travels as a header), or may be read by others. Group may read it if it belongs to another user:
/// that is how an administrator hands a secret to a service.
Result<std::string> ReadSecretFile(const std::string& path);

}  // namespace muster::launcher
