// Addresses, port ranges and interface candidates: literals only, and each address has one way to
// be written.

#include "common/address.h"
#include "common/network.h"
#include "fuzz/fuzz_input.h"

namespace muster {
namespace {

void CheckAddress(std::string_view text) {
  const Result<SocketAddress> address = ParseAddress(text);
  const Result<HostAndPort> split = SplitAddress(text);
  MUSTER_CHECK_EQ(address.ok(), split.ok());
  if (!address.ok()) {
    MUSTER_CHECK(!IsLoopbackAddress(text), "junk is not on loopback");
    return;
  }
  const std::string literal = ToLiteral(address.value());
  MUSTER_CHECK(literal == JoinAddress(split.value().host, split.value().port), literal);
  const Result<SocketAddress> again = ParseAddress(literal);
  MUSTER_CHECK(again.ok() && ToLiteral(again.value()) == literal, literal);
}

void CheckHost(std::string_view text) {
  const Result<std::string> host = CanonicalHost(text);
  MUSTER_CHECK_EQ(host.ok(), FamilyOf(text) != 0);
  if (!host.ok()) {
    MUSTER_CHECK(!IsLoopbackHost(text), "junk is not on loopback");
    return;
  }
  MUSTER_CHECK(CanonicalHost(host.value()).value() == host.value(), host.value());
  const Result<HostAndPort> joined = SplitAddress(JoinAddress(host.value(), 1));
  MUSTER_CHECK(joined.ok() && joined.value().host == host.value(), host.value());
}

void CheckPorts(std::string_view text) {
  const Result<PortRange> range = ParsePortRange(text);
  if (!range.ok()) {
    return;
  }
  MUSTER_CHECK(range.value().first > 0 && range.value().first <= range.value().last, "ports");
  const Result<PortRange> again = ParsePortRange(ToText(range.value()));
  MUSTER_CHECK(again.ok() && again.value() == range.value(), ToText(range.value()));
}

void CheckCandidate(const std::string& text) {
  static const std::vector<InterfaceAddress> existing = {{"lo", "127.0.0.1", AF_INET, true},
                                                         {"lo", "::1", AF_INET6, true},
                                                         {"eth0:1", "10.0.0.2", AF_INET, false},
                                                         {"eth0", "fd00::2", AF_INET6, false}};
  for (const auto family : {AddressFamily::kAny, AddressFamily::kIpv4, AddressFamily::kIpv6}) {
    const Result<std::vector<std::string>> chosen = ChooseAddresses({text}, family, existing);
    if (chosen.ok()) {
      MUSTER_CHECK(!chosen.value().empty(), text);
      for (const std::string& literal : chosen.value()) {
        MUSTER_CHECK(Matches(family, FamilyOf(literal)), literal);
      }
    }
  }
}

}  // namespace
}  // namespace muster

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = muster::fuzz::View(data, size);
  muster::CheckAddress(text);
  muster::CheckHost(text);
  muster::CheckPorts(text);
  muster::CheckCandidate(std::string(text));
  return 0;
}
