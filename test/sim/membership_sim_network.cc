// The network between the driver and the hosts: cuts of one host, of several, of the driver from
// all; heals before and after the lease; reboots. What was said meanwhile is kept by both sides and
// said again, as sessions do.

#include <algorithm>
#include <utility>

#include "test/sim/membership_sim.h"

namespace muster::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// What the driver and the agents keep to (docs/membership.md, "What the driver owes").
constexpr Duration kSuspectAfter = seconds(2);
constexpr Duration kTogetherWith = seconds(1);
constexpr Duration kLostAfterLease = seconds(1);

}  // namespace

bool MembershipSim::IsReachable(const HostId& host) const {
  const auto until = unreachable_until_.find(host);
  return until == unreachable_until_.end() || until->second <= now_;
}

// Links inside one host work always; those of an isolated host to others do not.
bool MembershipSim::Connected(const SimWorld& world) {
  const HostId& first = processes_.at(world.members.front()).slot.host;
  bool one_host = true;
  bool isolated = false;
  for (const Incarnation id : world.members) {
    const HostId& host = processes_.at(id).slot.host;
    one_host &= host == first;
    isolated |= agents_[host].isolated;
  }
  return one_host || !isolated;
}

void MembershipSim::CutSome() {
  std::vector<HostId> hosts;
  const uint64_t percent = Chance(30) ? 100 : 40;  // 100: the driver is cut off from everybody.
  for (const HostSlots& host : all_hosts_) {
    if (Chance(percent)) {
      hosts.push_back(host.host);
    }
  }
  CutOff(hosts, Chance(50));
}

void MembershipSim::CutOff(const std::vector<HostId>& hosts, bool isolated) {
  const Duration cut = Chance(65) ? Between(300, 9000) : Between(9000, 20'000);
  for (const HostId& host : hosts) {
    SimAgent& agent = agents_[host];
    // One comes back before the other: each tries again at its own times.
    const Duration back = cut + Between(0, 1500);
    unreachable_until_[host] = std::max(unreachable_until_[host], now_ + cut);
    if (!agent.up || agent.silent) {
      continue;
    }
    Note("host " + host.value + (isolated ? " is cut off" : " is cut off from the driver"));
    agent.silent = true;
    agent.isolated = isolated;
    agent.silent_since = now_;
    const auto unless_over = [this, host, life = agent.life](auto action) {
      return [this, host, life, action] {
        if (agents_[host].life == life && agents_[host].silent) {
          (this->*action)(host);
        }
      };
    };
    Later(std::min(back, options_.driver_grace),
          unless_over(back < options_.driver_grace ? &MembershipSim::Reconnect
                                                   : &MembershipSim::EndLease));
  }
  Later(kSuspectAfter + Between(0, 500), [this] { SuspectSilent(); });
}

void MembershipSim::SuspectSilent() {
  AgentSuspected event;
  bool due = false;
  for (auto& [host, agent] : agents_) {
    if (agent.up && agent.silent && !agent.suspected && now_ - agent.silent_since > kTogetherWith) {
      due |= now_ - agent.silent_since >= kSuspectAfter;
      event.hosts.push_back(host);
    }
  }
  if (!due) {
    return;
  }
  for (const HostId& host : event.hosts) {
    agents_[host].suspected = true;
    agents_[host].suspected_at = now_;
    Note("the driver suspects " + host.value);
  }
  Take(event);
}

// Within the lease: the session goes on, and both sides say again what the other has not heard.
void MembershipSim::Reconnect(const HostId& host) {
  SimAgent& agent = agents_[host];
  Note("host " + host.value + " is back");
  agent.silent = agent.isolated = false;
  const uint64_t life = agent.life;
  const bool reports_first = Chance(50);
  const bool was_suspected = std::exchange(agent.suspected, false);
  agent.back_at = was_suspected ? now_ : agent.back_at;
  const auto buffered = std::exchange(agent.buffered, {});
  if (was_suspected && !reports_first) {
    Take(AgentReattached{host});
  }
  for (const auto& deliver : buffered) {
    deliver();
  }
  if (was_suspected && reports_first && agents_[host].up && agents_[host].life == life) {
    Take(AgentReattached{host});
  }
}

// The agent has killed its workers and itself; the driver is sure of it a second later.
void MembershipSim::EndLease(const HostId& host) {
  Note("the lease of " + host.value + " is over");
  SimAgent& agent = agents_[host];
  agent.buffered.clear();
  for (auto& [id, process] : processes_) {
    process.dead |= process.slot.host == host;
  }
  Later(kLostAfterLease + Between(0, 500), [this, host, life = agent.life] {
    SimAgent& gone = agents_[host];
    if (gone.life == life && gone.up) {
      gone = SimAgent{};
      gone.life = life + 1;
      Take(AgentLost{host, "its lease is over"});
    }
  });
}

// Everything on the host is gone without a word, and it cannot be reached for a while.
void MembershipSim::Reboot(const HostId& host) {
  SimAgent& agent = agents_[host];
  if (!agent.up || agent.silent) {
    return;
  }
  Note("host " + host.value + " reboots");
  unreachable_until_[host] = now_ + Between(3000, 20'000);
  agent.silent = agent.isolated = true;
  agent.silent_since = now_;
  for (auto& [id, process] : processes_) {
    process.dead |= process.slot.host == host;
  }
  Later(kSuspectAfter + Between(0, 500), [this] { SuspectSilent(); });
  Later(options_.driver_grace, [this, host, life = agent.life] {
    if (agents_[host].life == life) {
      EndLease(host);
    }
  });
}

}  // namespace muster::launcher
