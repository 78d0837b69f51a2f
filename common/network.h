#pragma once

// This machine's addresses, the choice among them, and listening within a range of ports. No name
// look-ups, no packets: what is asked here is answered by the kernel at once.
//
// Stateless; any thread.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "common/unique_fd.h"

namespace muster {

struct InterfaceAddress {
  std::string interface;  // "eth0"
  std::string literal;    // A host literal (common/address.h): "10.0.0.2", "fd00::2".
  int family = 0;         // AF_INET or AF_INET6.
  bool loopback = false;
};

/// The text of an errno; "Too many open files" with the limit that was reached.
std::string ErrorText(int error);

/// Of all interfaces that are up, grouped by interface in the kernel's order; link-local IPv6
/// addresses are left out. Empty if the kernel does not tell.
std::vector<InterfaceAddress> LocalAddresses();
/// "lo (127.0.0.1, ::1), eth0 (10.0.0.2)"; "none" if there are none.
std::string DescribeAddresses(const std::vector<InterfaceAddress>& existing);

enum class AddressFamily : uint8_t { kAny, kIpv4, kIpv6 };
/// "any", "ipv4", "ipv6".
Result<AddressFamily> ParseAddressFamily(std::string_view text);
std::string_view Name(AddressFamily family);
bool Matches(AddressFamily wanted, int family);

/// Host literals of this machine. `candidates` are names of interfaces or host literals, in order
/// of preference: the first one that exists here counts, with all its addresses of the family. None
/// exists: an error that names them and lists what does. Without candidates: every address of the
/// family that is not on loopback, and an error if there is none. All of 127.0.0.0/8 exists where a
/// part of it does.
Result<std::vector<std::string>> ChooseAddresses(const std::vector<std::string>& candidates,
                                                 AddressFamily family,
                                                 const std::vector<InterfaceAddress>& existing);

struct PortRange {
  uint16_t first = 0;  // 0: any port.
  uint16_t last = 0;
  bool any() const { return first == 0; }
  bool operator==(const PortRange&) const = default;
};
/// "41000-41009", or "41000" for one port. Ports are 1 to 65535.
Result<PortRange> ParsePortRange(std::string_view text);
/// As ParsePortRange reads it; empty for any.
std::string ToText(PortRange range);

/// A TCP socket that listens at the host literal, on a port of the range: bound once and kept,
/// never shared. Non-blocking, closed on exec. Errors name address, range and reason.
Result<UniqueFd> ListenInRange(std::string_view host, PortRange range);

}  // namespace muster
