// What goes wrong, and how it is well again.

#include <algorithm>

#include "test/sim/membership_sim.h"

namespace muster::launcher {

void MembershipSim::Poll() {
  if (!healed_ && Chance(4) && !polled_.empty()) {
    Take(DiscoveryFailed{"discover.sh exited with code 1"});
  } else {
    polled_ = hosts_;
    Take(HostsDiscovered{hosts_});
  }
  Later(std::chrono::seconds(1), [this] { Poll(); });
}

void MembershipSim::PlanFaults() {
  const uint64_t count = random_.Below(12);
  for (uint64_t i = 0; i < count; ++i) {
    // Often close together, for it is second events that are hard.
    const Duration at = Between(100, 15'000);
    Later(at, [this] { Fault(); });
    if (Chance(30)) {
      Later(at + Duration(random_.Below(30'000)), [this] { Fault(); });
    }
  }
  if (Chance(5)) {
    Later(Between(100, 15'000), [this] {
      Note("stop");
      Take(StopRequested{15});
    });
  }
  Later(std::chrono::seconds(25), [this] { Heal(); });
}

void MembershipSim::Fault() {
  if (healed_ || finished_) {
    return;
  }
  std::vector<Incarnation> alive;
  for (const auto& [id, process] : processes_) {
    if (!process.dead && !process.frozen) {
      alive.push_back(id);
    }
  }
  const HostId host = all_hosts_[random_.Below(all_hosts_.size())].host;
  const uint64_t kind = random_.Below(100);
  if (kind < 55 && !alive.empty()) {
    FaultOnWorker(processes_.at(alive[random_.Below(alive.size())]));
  } else if (kind < 65) {
    BreakLink();
  } else if (kind < 69) {
    KillAgent(host);
  } else if (kind < 79) {
    CutSome();
  } else if (kind < 81) {
    Reboot(host);
  } else if (kind < 84) {
    Note("drain " + host.value);
    Report(host, DrainRequested{host});
  } else {
    ChangeHosts();
  }
}

void MembershipSim::FaultOnWorker(Process& process) {
  const Incarnation id = process.id;
  const HostId host = process.slot.host;
  const uint64_t kind = random_.Below(10);
  if (kind < 6) {
    Die(id, 137, 9);
  } else if (kind < 7) {
    Die(id, 7, 0);
  } else if (kind < 8 && process.joined && process.at != At::kShutdown) {
    // exit(0) in the middle: a goodbye, and no Done.
    Note("worker " + std::to_string(id.value) + " exits early");
    process.at = At::kShutdown;
    Report(host, WorkerBye{id});
    ExitByItself(id, 0);
    ReportBrokenLinks(id);
  } else {
    Note("worker " + std::to_string(id.value) + " freezes");
    process.frozen = true;
    Later(Between(1000, 1200), [this, id, host] {
      if (Alive(id) != nullptr) {
        Report(host, WorkerLost{id, LossKind::kFrozen, "stopped for 1 s"});
      }
    });
  }
}

void MembershipSim::BreakLink() {
  const std::vector<Incarnation>& members = membership_->members();
  if (members.size() < 2) {
    return;
  }
  const auto one = static_cast<uint32_t>(random_.Below(members.size()));
  const auto two = static_cast<uint32_t>(random_.Below(members.size()));
  const Generation generation = membership_->generation();
  if (one == two) {
    return;
  }
  Note("the link " + std::to_string(one) + "-" + std::to_string(two) + " breaks");
  worlds_[generation].broken = true;
  for (const auto& [reporter, suspect] : {std::pair(one, two), std::pair(two, one)}) {
    const Process* process = Alive(members[reporter]);
    if (process != nullptr && !process->frozen && (reporter == one || Chance(50))) {
      Report(process->slot.host,
             PeerLost{process->id, generation, {suspect}, false, "connection reset"});
    }
  }
}

// The reaper ends all its workers; the driver sees the end of the stream.
void MembershipSim::KillAgent(const HostId& host) {
  SimAgent& agent = agents_[host];
  if (!agent.up || agent.silent) {
    return;
  }
  Note("the agent of " + host.value + " dies");
  const uint64_t next_life = agent.life + 1;
  agent = SimAgent{};
  agent.life = next_life;
  for (auto& [id, process] : processes_) {
    process.dead |= process.slot.host == host;
  }
  Later(Between(0, 100), [this, host, life = agent.life] {
    if (agents_[host].life == life) {
      Take(AgentLost{host, "its process ended"});
    }
  });
}

void MembershipSim::ChangeHosts() {
  hosts_ = all_hosts_;
  for (HostSlots& host : hosts_) {
    if (Chance(40)) {
      host.slots = static_cast<uint32_t>(random_.Below(4));
    }
  }
  std::erase_if(hosts_, [this](const HostSlots&) { return Chance(25); });
  std::string text = "the hosts are";
  for (const HostSlots& host : hosts_) {
    text += " " + host.host.value + ":" + std::to_string(host.slots);
  }
  Note(text);
}

void MembershipSim::Heal() {
  Note("all is well again");
  healed_ = true;
  hosts_ = all_hosts_;
}

}  // namespace muster::launcher
