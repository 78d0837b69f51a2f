#include "common/network.h"

#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <map>
#include <memory>
#include <system_error>

#include "common/address.h"

namespace muster {
namespace {

std::string Join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : ", ") + word;
  }
  return text;
}

// IPv4 addresses carry a label, "eth0:1", in place of the interface's name.
bool IsOfInterface(const InterfaceAddress& address, std::string_view name) {
  const std::string_view label = address.interface;
  return label == name || label.substr(0, label.find(':')) == name;
}

std::vector<std::string> AddressesOf(const std::string& candidate,
                                     AddressFamily family,
                                     const std::vector<InterfaceAddress>& existing) {
  const Result<std::string> literal = CanonicalHost(candidate);
  std::vector<std::string> found;
  for (const InterfaceAddress& address : existing) {
    if (!Matches(family, address.family)) {
      continue;
    }
    if (!literal.ok() && IsOfInterface(address, candidate)) {
      found.push_back(address.literal);
    } else if (literal.ok() && found.empty() &&
               (address.literal == literal.value() ||
                (address.family == AF_INET && address.loopback &&
                 literal.value().starts_with("127.")))) {
      found.push_back(literal.value());
    }
  }
  return found;
}

std::string OfFamily(AddressFamily family) {
  return family == AddressFamily::kAny ? "" : std::string(" ") + std::string(Name(family));
}

// ---------------------------------------------------------------- listening

// Closed connections of an earlier job (TIME_WAIT) do not count as in use; with any port asked for
// the kernel finds one that is quite free, so that two sockets never get the same.
void SetOptions(int fd, int family, bool reuse_address) {
  const int on = 1;
  if (reuse_address) {
    ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  }
  if (family == AF_INET6) {
    ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  }
}

/// The errno of what failed; 0: it listens.
int TryListen(const SocketAddress& address, UniqueFd& listener) {
  const int family = address.storage.ss_family;
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) {
    return errno;
  }
  const bool any_port = reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port == 0;
  SetOptions(fd.get(), family, !any_port);
  // Two sockets that reuse addresses may both bind before one listens; then listen() tells.
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0) {
    return errno;
  }
  listener = std::move(fd);
  return 0;
}

}  // namespace

std::string ErrorText(int error) {
  rlimit limit{};
  std::string text = std::generic_category().message(error);
  if (error == EMFILE && ::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    text += ", limit " + std::to_string(limit.rlim_cur);
  }
  return text;
}

std::string DescribeAddresses(const std::vector<InterfaceAddress>& existing) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < existing.size();) {
    const std::string& interface = existing[i].interface;
    std::vector<std::string> literals;
    for (; i < existing.size() && existing[i].interface == interface; ++i) {
      literals.push_back(existing[i].literal);
    }
    parts.push_back(interface + " (" + Join(literals) + ")");
  }
  return parts.empty() ? "none" : Join(parts);
}

Result<AddressFamily> ParseAddressFamily(std::string_view text) {
  for (const auto family : {AddressFamily::kAny, AddressFamily::kIpv4, AddressFamily::kIpv6}) {
    if (text == Name(family)) {
      return family;
    }
  }
  return Status::Invalid("must be any, ipv4 or ipv6");
}

std::string_view Name(AddressFamily family) {
  switch (family) {
    case AddressFamily::kIpv4:
      return "ipv4";
    case AddressFamily::kIpv6:
      return "ipv6";
    case AddressFamily::kAny:
      break;
  }
  return "any";
}

bool Matches(AddressFamily wanted, int family) {
  return wanted == AddressFamily::kAny ||
         family == (wanted == AddressFamily::kIpv4 ? AF_INET : AF_INET6);
}

Result<std::vector<std::string>> ChooseAddresses(const std::vector<std::string>& candidates,
                                                 AddressFamily family,
                                                 const std::vector<InterfaceAddress>& existing) {
  for (const std::string& candidate : candidates) {
    std::vector<std::string> found = AddressesOf(candidate, family, existing);
    if (!found.empty()) {
      return found;
    }
  }
  if (!candidates.empty()) {
    return Status::Failed("no" + OfFamily(family) + " address here is one of " + Join(candidates) +
                          " (--network-interface); there are: " + DescribeAddresses(existing));
  }
  std::vector<std::string> found;
  for (const InterfaceAddress& address : existing) {
    if (!address.loopback && Matches(family, address.family)) {
      found.push_back(address.literal);
    }
  }
  if (found.empty()) {
    return Status::Failed(
        "no" + OfFamily(family) +
        " address here that other hosts could reach; there are: " + DescribeAddresses(existing));
  }
  return found;
}

Result<PortRange> ParsePortRange(std::string_view text) {
  const auto bad = [&] {
    return Status::Invalid("must be ports from 1 to 65535, as in 41000-41009 or 41000");
  };
  const auto port = [](std::string_view digits, uint16_t& value) {
    const char* end = digits.data() + digits.size();
    const auto parsed = std::from_chars(digits.data(), end, value);
    return !digits.empty() && parsed.ec == std::errc() && parsed.ptr == end && value > 0;
  };
  PortRange range;
  const size_t dash = text.find('-');
  if (!port(text.substr(0, dash), range.first)) {
    return bad();
  }
  range.last = range.first;
  if (dash != std::string_view::npos && !port(text.substr(dash + 1), range.last)) {
    return bad();
  }
  if (range.last < range.first) {
    return Status::Invalid("the first port must not be above the last one");
  }
  return range;
}

std::string ToText(PortRange range) {
  if (range.any()) {
    return "";
  }
  const std::string first = std::to_string(range.first);
  return range.first == range.last ? first : first + "-" + std::to_string(range.last);
}

Result<UniqueFd> ListenInRange(std::string_view host, PortRange range) {
  const std::string shown(host.substr(0, 64));
  for (uint32_t port = range.first; port <= range.last; ++port) {
    Result<SocketAddress> address = ParseAddress(JoinAddress(host, static_cast<uint16_t>(port)));
    if (!address.ok()) {
      return address.status();
    }
    UniqueFd listener;
    const int error = TryListen(address.value(), listener);
    if (error == 0) {
      return listener;
    }
    if (error != EADDRINUSE || range.any()) {
      std::string text = "cannot listen at " + shown;
      text += range.any() ? ": " : " on the ports " + ToText(range) + ": ";
      return Status::Failed(text + ErrorText(error));
    }
  }
  if (range.first == range.last) {
    return Status(
        StatusCode::kUnavailable,
        "port " + ToText(range) + " on " + shown + " is in use: give another --port-range");
  }
  return Status(StatusCode::kUnavailable,
                "no free port in " + ToText(range) + " on " + shown + ": widen --port-range");
}

}  // namespace muster
