// The part of Driver that lets other machines reach this one and its workers.

#include <algorithm>
#include <utility>

#include "common/address.h"
#include "common/log.h"
#include "launcher/driver/driver.h"

namespace muster::launcher {
namespace {

// Workers open a listener on their engine thread, which never blocks; one that does not is about
// to be lost.
constexpr Duration kListenDeadline = std::chrono::seconds(5);

}  // namespace

// What --network-interface asks for must be there at the start, not when the first host comes.
Status Driver::PrepareNetwork() {
  const NetworkOptions& network = options_.network;
  if (!network.interfaces.empty()) {
    Result<std::vector<std::string>> own =
        ChooseAddresses(network.interfaces, network.family, LocalAddresses());
    if (!own.ok()) {
      return own.status();
    }
    own_addresses_ = std::move(own).value();
    listen_ = {JoinAddress(own_addresses_.front(), 0)};
  } else if (network.family == AddressFamily::kIpv6) {
    listen_ = {JoinAddress("::1", 0)};  // Workers would prefer IPv4.
  }
  if (!options_.accept_agents_port) {
    return Status::Ok();
  }
  return OpenToNetwork();
}

// Idempotent: the second server is there once it is needed.
Status Driver::OpenToNetwork() {
  if (!service_.routable_addresses().empty()) {
    return Status::Ok();
  }
  if (own_addresses_.empty()) {
    Result<std::vector<std::string>> own =
        ChooseAddresses({}, options_.network.family, LocalAddresses());
    if (!own.ok()) {
      return own.status();
    }
    own_addresses_ = std::move(own).value();
  }
  PortRange ports = options_.network.ports;
  std::vector<std::string> literals = own_addresses_;
  if (options_.accept_agents_port) {
    ports = {*options_.accept_agents_port, *options_.accept_agents_port};
    if (options_.network.interfaces.empty() && options_.network.family != AddressFamily::kIpv6) {
      literals.emplace_back("127.0.0.1");  // To try it out on one machine.
    }
  }
  if (Status listening = service_.StartRoutable(literals, ports); !listening.ok()) {
    return options_.accept_agents_port ? Status::Failed("--accept-agents: " + listening.message())
                                       : listening;
  }
  std::string all;
  for (const std::string& literal : service_.routable_addresses()) {
    if (IsLoopbackAddress(literal) && service_.routable_addresses().size() > 1) {
      continue;  // No address for others.
    }
    all += (all.empty() ? "" : ",") + literal;
  }
  if (options_.accept_agents_port) {
    spdlog::warn("agents may dial in: muster agent --join {} --slots N", all);
  } else {
    spdlog::info("other hosts reach the driver at {}", all);
  }
  return Status::Ok();
}

// The address of this machine that its workers are to be reached at: the one at which that agent
// reached the driver, if it is this machine's at all and not one of something in between.
std::string Driver::LocalAddressFor(const v1::AgentHello& hello) const {
  if (!options_.network.interfaces.empty()) {
    return own_addresses_.front();
  }
  const Result<HostAndPort> reached = SplitAddress(hello.driver_address().literal());
  if (reached.ok()) {
    for (const InterfaceAddress& own : LocalAddresses()) {
      if (own.literal == reached.value().host) {
        return own.literal;
      }
    }
  }
  return own_addresses_.empty() ? "127.0.0.1" : own_addresses_.front();
}

// A world that spans machines is formed only with members that all can reach, so a remote host
// takes part only once the workers of this machine listen where it can reach them.
void Driver::Announce(const HostId& host, const v1::AgentHello& hello) {
  if (agents_.at(host).kind == AgentKind::kLocal) {
    agents_.at(host).announced = true;
    Apply(AgentAttached{host});
    return;
  }
  const std::string literal = JoinAddress(LocalAddressFor(hello), 0);
  held_back_[host] = literal;
  if (std::find(listen_.begin(), listen_.end(), literal) == listen_.end()) {
    OpenLocalListeners(literal);
  }
  AnnounceReady();
}

void Driver::OpenLocalListeners(const std::string& literal) {
  listen_.push_back(literal);
  v1::AgentOrder order;
  order.mutable_open_listeners()->mutable_address()->set_literal(literal);
  for (const auto& [host, agent] : agents_) {
    if (agent.kind == AgentKind::kLocal && agent.connected) {
      service_.Send(host, order);
      opening_[literal].insert(host);
    }
  }
  loop_.After(kListenDeadline, [this, literal] {
    if (opening_.erase(literal) > 0) {
      spdlog::warn("not all workers of this machine listen at {} yet", literal);
      AnnounceReady();
    }
  });
}

void Driver::OnListenersOpened(const HostId& host, const std::string& literal) {
  const auto it = opening_.find(literal);
  if (it != opening_.end()) {
    it->second.erase(host);
    if (it->second.empty()) {
      opening_.erase(it);
    }
  }
  AnnounceReady();
}

void Driver::StopAwaitingListeners(const HostId& host) {
  for (auto& [literal, waiting] : opening_) {
    waiting.erase(host);
  }
  std::erase_if(opening_, [](const auto& entry) { return entry.second.empty(); });
  AnnounceReady();
}

void Driver::AnnounceReady() {
  for (auto it = held_back_.begin(); it != held_back_.end();) {
    if (opening_.contains(it->second)) {
      ++it;
      continue;
    }
    // Posted, because this may come while effects are being performed.
    loop_.Post([this, host = it->first] {
      const auto agent = agents_.find(host);
      if (agent != agents_.end() && !agent->second.lost && !agent->second.stopping) {
        agent->second.announced = true;
        Apply(AgentAttached{host});
      }
    });
    it = held_back_.erase(it);
  }
}

}  // namespace muster::launcher
