#include "common/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <charconv>

namespace muster {
namespace {

constexpr size_t kShownMax = 64;

std::string Shown(std::string_view text) {
  return "'" + std::string(text.substr(0, kShownMax)) + "'";
}

bool FillHost(const std::string& host, int family, SocketAddress& address) {
  if (family == AF_INET6) {
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
    v6->sin6_family = AF_INET6;
    address.size = sizeof *v6;
    return inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1;
  }
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  v4->sin_family = AF_INET;
  address.size = sizeof *v4;
  return inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1;
}

std::string HostOf(const SocketAddress& address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address.storage.ss_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address.storage);
    inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
  } else {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address.storage);
    inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
  }
  return text;
}

// Both families have the port at the same place.
uint16_t PortOf(const SocketAddress& address) {
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port);
}

Result<SocketAddress> ParseHost(std::string_view host) {
  SocketAddress address;
  const int family = host.find(':') == std::string_view::npos ? AF_INET : AF_INET6;
  if (host.find('%') != std::string_view::npos) {
    return Status::Invalid(Shown(host) + " has a zone, which means nothing on another machine");
  }
  // inet_pton would stop at a zero byte.
  if (host.find('\0') != std::string_view::npos || !FillHost(std::string(host), family, address)) {
    return Status::Invalid(Shown(host) + " is not an address like 10.0.0.2 or fd00::2");
  }
  return address;
}

}  // namespace

Result<SocketAddress> ParseAddress(std::string_view literal) {
  const auto bad = [&] {
    return Status::Invalid(Shown(literal) + " is not an address like 127.0.0.1:4711 or [::1]:4711");
  };
  const size_t colon = literal.rfind(':');
  if (colon == std::string_view::npos) {
    return bad();
  }
  uint16_t port = 0;
  const char* end = literal.data() + literal.size();
  const auto parsed = std::from_chars(literal.data() + colon + 1, end, port);
  if (parsed.ec != std::errc() || parsed.ptr != end) {
    return bad();
  }
  std::string_view host = literal.substr(0, colon);
  const bool brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (brackets) {
    host = host.substr(1, host.size() - 2);
  }
  if (brackets != (host.find(':') != std::string_view::npos)) {
    return bad();
  }
  Result<SocketAddress> address = ParseHost(host);
  if (address.ok()) {
    reinterpret_cast<sockaddr_in*>(&address.value().storage)->sin_port = htons(port);
  }
  return address;
}

std::string ToLiteral(const SocketAddress& address) {
  return JoinAddress(HostOf(address), PortOf(address));
}

Result<HostAndPort> SplitAddress(std::string_view literal) {
  const Result<SocketAddress> address = ParseAddress(literal);
  if (!address.ok()) {
    return address.status();
  }
  return HostAndPort{HostOf(address.value()), PortOf(address.value())};
}

std::string JoinAddress(std::string_view host, uint16_t port) {
  const std::string tail = ":" + std::to_string(port);
  const std::string text(host);
  return text.find(':') == std::string::npos ? text + tail : "[" + text + "]" + tail;
}

Result<std::string> CanonicalHost(std::string_view host) {
  const Result<SocketAddress> address = ParseHost(host);
  if (!address.ok()) {
    return address.status();
  }
  return HostOf(address.value());
}

int FamilyOf(std::string_view host) {
  const Result<SocketAddress> address = ParseHost(host);
  return address.ok() ? address.value().storage.ss_family : 0;
}

bool IsLoopbackHost(std::string_view host) {
  const Result<std::string> canonical = CanonicalHost(host);
  return canonical.ok() && (canonical.value().starts_with("127.") || canonical.value() == "::1");
}

bool IsLoopbackAddress(std::string_view literal) {
  const Result<HostAndPort> split = SplitAddress(literal);
  return split.ok() && IsLoopbackHost(split.value().host);
}

}  // namespace muster
