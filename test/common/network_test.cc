#include "common/network.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "common/address.h"

namespace muster {
namespace {

using Catch::Matchers::Contains;
using Strings = std::vector<std::string>;

const std::vector<InterfaceAddress> kExisting{{"lo", "127.0.0.1", AF_INET, true},
                                              {"lo", "::1", AF_INET6, true},
                                              {"eth0", "10.0.0.2", AF_INET, false},
                                              {"eth0", "10.0.0.3", AF_INET, false},
                                              {"eth0", "fd00::2", AF_INET6, false},
                                              {"docker0:1", "172.17.0.1", AF_INET, false}};

Strings Choose(const Strings& candidates, AddressFamily family = AddressFamily::kAny) {
  const Result<Strings> chosen = ChooseAddresses(candidates, family, kExisting);
  INFO(chosen.status().message());
  REQUIRE(chosen.ok());
  return chosen.value();
}

std::string Error(const Strings& candidates,
                  AddressFamily family = AddressFamily::kAny,
                  const std::vector<InterfaceAddress>& existing = kExisting) {
  const Result<Strings> chosen = ChooseAddresses(candidates, family, existing);
  REQUIRE_FALSE(chosen.ok());
  return chosen.status().message();
}

int PortOf(const UniqueFd& listener) {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  REQUIRE(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  return ntohs(address.sin_port);
}

/// Some ports in a row that are free at 127.0.0.9, found without holding one.
PortRange FreeRange(int count) {
  for (int first = 20000; first < 30000; first += count) {
    const PortRange range{static_cast<uint16_t>(first), static_cast<uint16_t>(first + count - 1)};
    std::vector<UniqueFd> all;
    for (int i = 0; i < count; ++i) {
      Result<UniqueFd> one = ListenInRange("127.0.0.9", range);
      if (one.ok()) {
        all.push_back(std::move(one).value());
      }
    }
    if (static_cast<int>(all.size()) == count) {
      return range;
    }
  }
  FAIL("no free ports");
  return {};
}

}  // namespace

// ---------------------------------------------------------------- interfaces

TEST_CASE("addresses of this machine are literals of interfaces that are up") {
  const std::vector<InterfaceAddress> addresses = LocalAddresses();
  for (const InterfaceAddress& address : addresses) {
    CAPTURE(address.literal);
    CHECK(CanonicalHost(address.literal).value() == address.literal);
    CHECK(FamilyOf(address.literal) == address.family);
    CHECK_FALSE(address.interface.empty());
    CHECK_THAT(address.literal, !Catch::StartsWith("fe80"));
    CHECK(address.loopback == IsLoopbackHost(address.literal));
    CHECK(ListenInRange(address.literal, {}).ok());
  }
}

TEST_CASE("addresses are described by interface") {
  CHECK(DescribeAddresses(kExisting) ==
        "lo (127.0.0.1, ::1), eth0 (10.0.0.2, 10.0.0.3, fd00::2), docker0:1 (172.17.0.1)");
  CHECK(DescribeAddresses({}) == "none");
}

TEST_CASE("choice takes all addresses of the first candidate that is here") {
  CHECK(Choose({"nosuch0", "eth0", "lo"}) == Strings{"10.0.0.2", "10.0.0.3", "fd00::2"});
  CHECK(Choose({"lo"}) == Strings{"127.0.0.1", "::1"});
  CHECK(Choose({"10.9.9.9", "10.0.0.3"}) == Strings{"10.0.0.3"});
  CHECK(Choose({"FD00::0:2"}) == Strings{"fd00::2"});
  CHECK(Choose({"docker0"}) == Strings{"172.17.0.1"});
  CHECK(Choose({"docker0:1"}) == Strings{"172.17.0.1"});
}

TEST_CASE("choice heeds the family, and a candidate without it is passed over") {
  CHECK(Choose({"eth0"}, AddressFamily::kIpv6) == Strings{"fd00::2"});
  CHECK(Choose({"docker0", "eth0"}, AddressFamily::kIpv6) == Strings{"fd00::2"});
  CHECK(Choose({"::1", "127.0.0.1"}, AddressFamily::kIpv4) == Strings{"127.0.0.1"});
}

TEST_CASE("choice takes any address of the loopback block, for all of them are here") {
  CHECK(Choose({"127.0.0.9"}) == Strings{"127.0.0.9"});
  CHECK_THAT(Error({"127.0.0.9"}, AddressFamily::kAny, {{"lo", "::1", AF_INET6, true}}),
             Contains("127.0.0.9"));
}

TEST_CASE("choice without candidates is every address but loopback") {
  CHECK(Choose({}) == Strings{"10.0.0.2", "10.0.0.3", "fd00::2", "172.17.0.1"});
  CHECK(Choose({}, AddressFamily::kIpv6) == Strings{"fd00::2"});
}

TEST_CASE("choice that fails says what was wanted and what there is") {
  CHECK(Error({"nosuch0", "10.9.9.9"}, AddressFamily::kAny, {kExisting[0], kExisting[2]}) ==
        "no address here is one of nosuch0, 10.9.9.9 (--network-interface); there are: lo "
        "(127.0.0.1), eth0 (10.0.0.2)");
  CHECK_THAT(Error({"docker0"}, AddressFamily::kIpv6), Contains("no ipv6 address"));
  CHECK_THAT(Error({}, AddressFamily::kIpv6, {kExisting[0], kExisting[2]}),
             Contains("no ipv6 address") && Contains("eth0 (10.0.0.2)"));
  CHECK_THAT(Error({}, AddressFamily::kAny, {}), Contains("there are: none"));
}

TEST_CASE("families have names") {
  for (const char* name : {"any", "ipv4", "ipv6"}) {
    CHECK(Name(ParseAddressFamily(name).value()) == name);
  }
  CHECK_FALSE(ParseAddressFamily("inet").ok());
  CHECK(Matches(AddressFamily::kAny, AF_INET6));
  CHECK_FALSE(Matches(AddressFamily::kIpv4, AF_INET6));
}

// ---------------------------------------------------------------- ports

TEST_CASE("port ranges come back as they went") {
  CHECK(ParsePortRange("41000-41009").value() == PortRange{41000, 41009});
  CHECK(ParsePortRange("1-65535").value() == PortRange{1, 65535});
  CHECK(ToText(ParsePortRange("41000-41009").value()) == "41000-41009");
  CHECK(ToText(ParsePortRange("41000").value()) == "41000");
  CHECK(ToText({}).empty());
  CHECK(PortRange{}.any());
  for (const char* bad :
       {"", "-", "0", "0-1", "2-1", "1-65536", "1-", "-1", "1-2-3", "1 - 2", "a"}) {
    CAPTURE(bad);
    CHECK_FALSE(ParsePortRange(bad).ok());
  }
}

TEST_CASE("listeners fill a range, and then it says that it is full") {
  const PortRange range = FreeRange(3);
  std::vector<UniqueFd> listeners;
  std::vector<int> ports;
  for (int i = 0; i < 3; ++i) {
    Result<UniqueFd> listener = ListenInRange("127.0.0.9", range);
    REQUIRE(listener.ok());
    ports.push_back(PortOf(listener.value()));
    listeners.push_back(std::move(listener).value());
  }
  CHECK(ports == std::vector<int>{range.first, range.first + 1, range.last});
  const Result<UniqueFd> none = ListenInRange("127.0.0.9", range);
  CHECK(none.status().code() == StatusCode::kUnavailable);
  CHECK(none.status().message() ==
        "no free port in " + ToText(range) + " on 127.0.0.9: widen --port-range");
  CHECK_THAT(ListenInRange("127.0.0.9", {range.first, range.first}).status().message(),
             Contains("port " + std::to_string(range.first) + " on 127.0.0.9 is in use"));
  listeners[1].Reset();
  CHECK(PortOf(ListenInRange("127.0.0.9", range).value()) == ports[1]);
}

TEST_CASE("a port of the range is used again although its connections wait for their end") {
  const PortRange range = FreeRange(1);
  UniqueFd listener = ListenInRange("127.0.0.9", range).value();
  const SocketAddress address = ParseAddress(JoinAddress("127.0.0.9", range.first)).value();
  UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::connect(client.get(),
                    reinterpret_cast<const sockaddr*>(&address.storage),
                    address.size) == 0);
  UniqueFd served(::accept(listener.get(), nullptr, nullptr));
  REQUIRE(served.valid());
  served.Reset();  // First, so that TIME_WAIT is on this side.
  client.Reset();
  listener.Reset();
  CHECK(ListenInRange("127.0.0.9", range).ok());
}

TEST_CASE("two listeners without a range never share a port") {
  UniqueFd one = ListenInRange("127.0.0.1", {}).value();
  UniqueFd two = ListenInRange("127.0.0.1", {}).value();
  CHECK(PortOf(one) != PortOf(two));
  int reuse = 1;
  socklen_t size = sizeof reuse;
  REQUIRE(::getsockopt(one.get(), SOL_SOCKET, SO_REUSEADDR, &reuse, &size) == 0);
  CHECK(reuse == 0);
  CHECK((::fcntl(one.get(), F_GETFL) & O_NONBLOCK) != 0);
  CHECK((::fcntl(one.get(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("listening where this machine is not names address, range and reason") {
  const Result<UniqueFd> nowhere = ListenInRange("198.51.100.1", {41000, 41001});
  CHECK(nowhere.status().code() == StatusCode::kFailed);
  CHECK(nowhere.status().message() ==
        "cannot listen at 198.51.100.1 on the ports 41000-41001: Cannot assign requested address");
  CHECK(ListenInRange("198.51.100.1", {}).status().message() ==
        "cannot listen at 198.51.100.1: Cannot assign requested address");
  CHECK(ListenInRange("localhost", {}).status().code() == StatusCode::kInvalid);
}

TEST_CASE("a shortage of descriptors is named with its limit") {
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const rlimit none{0, limit.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  const Result<UniqueFd> listener = ListenInRange("127.0.0.1", {});
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &limit) == 0);
  CHECK(listener.status().message() == "cannot listen at 127.0.0.1: Too many open files, limit 0");
}

}  // namespace muster
