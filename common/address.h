#pragma once

// Addresses of TCP sockets as literals ("127.0.0.1:4711", "[::1]:4711"), never names: what one host
// makes of a name another one may not, and a look-up can hang. Not about sockets or interfaces
// (common/network.h).
//
// A "host literal" is an address without port and brackets: "10.0.0.2", "fd00::2". Link-local IPv6
// addresses with a zone ("fe80::1%eth0") are refused everywhere: a zone means something on one
// machine only.
//
// Pure; any thread.

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "common/status.h"

namespace muster {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

/// "10.0.0.2:4711" and "[fd00::2]:4711"; port 0 is one too.
Result<SocketAddress> ParseAddress(std::string_view literal);
std::string ToLiteral(const SocketAddress& address);

struct HostAndPort {
  std::string host;  // A host literal, as inet_ntop writes it.
  uint16_t port = 0;
};
Result<HostAndPort> SplitAddress(std::string_view literal);
/// Sets the brackets that IPv6 needs.
std::string JoinAddress(std::string_view host, uint16_t port);

/// A host literal as inet_ntop writes it, so that two spellings compare equal; kInvalid: it is
/// none.
Result<std::string> CanonicalHost(std::string_view host);
/// AF_INET or AF_INET6; 0: not a host literal.
int FamilyOf(std::string_view host);
/// 127.0.0.0/8 or ::1. The second form takes a literal with a port; junk is not on loopback.
bool IsLoopbackHost(std::string_view host);
bool IsLoopbackAddress(std::string_view literal);

}  // namespace muster
