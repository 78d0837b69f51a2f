#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include "common/address.h"
#include "common/network.h"

namespace muster {
namespace {

bool IsLinkLocalV6(const sockaddr* address) {
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

std::string HostLiteral(const sockaddr* raw) {
  SocketAddress address;
  address.size = raw->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  std::memcpy(&address.storage, raw, address.size);
  return SplitAddress(ToLiteral(address)).value().host;
}

bool IsUsable(const ifaddrs& entry) {
  return entry.ifa_addr != nullptr && (entry.ifa_flags & IFF_UP) != 0 &&
         (entry.ifa_addr->sa_family == AF_INET || entry.ifa_addr->sa_family == AF_INET6) &&
         !IsLinkLocalV6(entry.ifa_addr);
}

}  // namespace

std::vector<InterfaceAddress> LocalAddresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return {};
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, &::freeifaddrs);
  std::map<std::string, size_t> order;  // By name, of first appearance.
  std::vector<InterfaceAddress> addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    order.emplace(entry->ifa_name, order.size());
    if (IsUsable(*entry)) {
      addresses.push_back({entry->ifa_name,
                           HostLiteral(entry->ifa_addr),
                           entry->ifa_addr->sa_family,
                           (entry->ifa_flags & IFF_LOOPBACK) != 0});
    }
  }
  std::stable_sort(addresses.begin(), addresses.end(), [&order](const auto& a, const auto& b) {
    return order.at(a.interface) < order.at(b.interface);
  });
  return addresses;
}

}  // namespace muster
