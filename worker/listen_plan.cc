#include "worker/listen_plan.h"

#include "common/address.h"
#include "common/worker_page.h"

namespace muster::worker {
namespace {

Status Bad(const char* variable, std::string_view value, const Status& why) {
  return Status::Invalid(std::string(variable) + "=" + std::string(value) + ": " + why.message());
}

}  // namespace

Result<ListenPlan> ReadListenPlan(std::string_view listen, std::string_view ports) {
  ListenPlan plan;
  if (!ports.empty()) {
    const Result<PortRange> range = ParsePortRange(ports);
    if (!range.ok()) {
      return Bad(kEnvPortRange, ports, range.status());
    }
    plan.ports = range.value();
  }
  for (std::string_view rest = listen; !rest.empty();) {
    const size_t comma = rest.find(',');
    const Result<HostAndPort> address = SplitAddress(rest.substr(0, comma));
    if (!address.ok()) {
      return Bad(kEnvListen, listen, address.status());
    }
    plan.hosts.push_back(address.value().host);
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
  }
  return plan;
}

}  // namespace muster::worker
