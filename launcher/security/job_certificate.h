#pragma once

// The certificates of a job's TLS, all from the job's secret and nothing else. Whoever has the
// secret can compute the key of the job's own authority (ECDSA P-256, derived with HKDF-SHA256), so
// driver and agents agree on it without sending anything. The driver signs a fresh certificate with
// it; an agent trusts that authority alone. Nothing is kept in files.
//
// The authority is no better than the secret: one that can be guessed can be tried against any
// certificate seen on the wire. ReadSecretFile (secret_file.h) asks for a long one.
//
// Thread-safe: no state. Each call costs well under a millisecond.

#include <string>
#include <string_view>

#include "common/status.h"

namespace muster::launcher {

/// The one name in the driver's certificate, whatever address it is reached at.
inline constexpr const char* kDriverName = "driver.muster";

/// The authority's certificate as PEM. Each call makes another copy, since ECDSA signatures are
/// random; key, name and validity are the same in all, so a certificate that was signed under one
/// copy holds under every other. Valid from 2000 to 9999: a host's wrong clock is no reason to
/// refuse a driver that knows the secret.
Result<std::string> JobAuthority(std::string_view secret);

struct ServerIdentity {
  std::string certificate_pem;
  std::string key_pem;
};

/// A certificate for kDriverName with a fresh key, signed by the job's authority.
Result<ServerIdentity> MakeServerIdentity(std::string_view secret);

}  // namespace muster::launcher
