// What goes wrong, and how it is well again.

#include <algorithm>
#include <utility>

#include "test/sim/job/job_sim.h"
#include "test/sim/job/sim_generation.h"
#include "test/sim/job/sim_worker.h"

namespace muster::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kHealAt = seconds(25);
// Shorter than this nobody may be taken for frozen.
constexpr Duration kHarmlessPause = milliseconds(700);

}  // namespace

void JobSim::PlanFaults() {
  Duration at{};
  for (uint64_t i = universe_.Below(14); i > 0; --i) {
    // Often close together, for it is second events that are hard.
    at = universe_.Chance(50) ? at + universe_.Between(Duration::zero(), milliseconds(300))
                              : universe_.Between(milliseconds(50), seconds(20));
    universe_.At(at, [this] { Fault(); });
  }
  universe_.At(kHealAt, [this] { Heal(); });
}

void JobSim::Fault() {
  if (healed_ || !site_.driver) {
    return;
  }
  ++faults_;
  const uint64_t kind = universe_.Below(100);
  if (kind < 52) {
    FaultOnWorker();
  } else if (kind < 64) {
    FaultOnAgent();
  } else if (kind < 82) {
    FaultOnNetwork();
  } else if (kind < 94) {
    FaultOnDiscovery();
  } else {
    FaultOnDriver();
  }
}

Machine& JobSim::AnyMachine() {
  auto it = site_.machines.begin();
  std::advance(it, universe_.Below(site_.machines.size()));
  return *it->second;
}

SimWorker* JobSim::AnyWorker() {
  const std::vector<SimWorker*> living = site_.Living();
  return living.empty() ? nullptr : living[universe_.Below(living.size())];
}

void JobSim::FaultOnWorker() {
  SimWorker* worker = AnyWorker();
  if (worker == nullptr) {
    return;
  }
  const uint64_t kind = universe_.Below(100);
  const std::string who = "worker " + std::to_string(worker->id().value);
  if (kind < 45) {
    worker->Kill(9, "a fault");
  } else if (kind < 53) {
    worker->ExitSoon(7);
  } else if (kind < 58) {
    exited_early_ |= !worker->joined();
    worker->ExitSoon(0);
  } else if (kind < 68) {
    frozen_.insert(worker->id());
    worker->Stop();
    if (universe_.Chance(30)) {
      universe_.At(universe_.Between(milliseconds(900), seconds(8)),
                   [worker] { worker->Continue(); });
    } else {
      ExpectFrozenLost(*worker);
    }
  } else if (kind < 82) {
    Pause(*worker, universe_.Between(milliseconds(5), kHarmlessPause));
  } else if (const auto& generation = worker->generation();
             generation != nullptr && generation->size() > 1) {
    const auto other = static_cast<uint32_t>(universe_.Below(generation->size()));
    if (other != worker->rank()) {
      universe_.Note("the link " + std::to_string(worker->rank()) + "-" + std::to_string(other) +
                     " breaks");
      generation->BreakLink(worker->rank(), other);
    }
  }
}

void JobSim::Pause(SimWorker& worker, Duration time) {
  worker.Stop();
  universe_.At(time, [&worker] { worker.Continue(); });
}

void JobSim::FaultOnAgent() {
  Machine& machine = AnyMachine();
  switch (universe_.Below(6)) {
    case 0:
    case 1:
      return machine.KillAgent();
    case 2:
      return machine.KillReaper();
    case 3:
      return machine.KillAgentAndReaper();
    case 4:
      machine.StopAgent();
      return universe_.At(universe_.Between(milliseconds(100), seconds(6)),
                          [&machine] { machine.ContinueAgent(); });
    default:
      drained_ = true;
      return machine.Terminate();
  }
}

void JobSim::FaultOnNetwork() {
  if (!remote_) {
    return;
  }
  const uint64_t kind = universe_.Below(10);
  Machine& machine = AnyMachine();
  if (kind < 3) {
    for (const std::weak_ptr<Connection>& held : site_.connections) {
      const std::shared_ptr<Connection> connection = held.lock();
      if (connection != nullptr && connection->open() && connection->machine() != kDriverMachine &&
          universe_.Chance(50)) {
        universe_.Note("a stream of " + connection->machine() + " breaks");
        connection->Break();
      }
    }
  } else if (kind < 9) {
    CutSome();
  } else if (!machine.local()) {
    machine.Reboot(universe_.Between(seconds(2), seconds(15)));
  }
}

// One machine or several, one way or both, from the driver alone or from everybody.
void JobSim::CutSome() {
  const uint64_t percent = universe_.Chance(30) ? 100 : 40;
  const bool isolated = universe_.Chance(50);
  const uint64_t direction = universe_.Below(4);
  const Duration length = universe_.Chance(65) ? universe_.Between(milliseconds(100), seconds(5))
                                               : universe_.Between(seconds(5), seconds(18));
  std::set<std::string> others{kDriverMachine};
  if (isolated) {
    for (const auto& [host, machine] : site_.machines) {
      others.insert(machine->address());
    }
  }
  for (const auto& [host, machine] : site_.machines) {
    if (machine->local() || !universe_.Chance(percent)) {
      continue;
    }
    universe_.Note("machine " + host.value + " is cut off" + (isolated ? "" : " from the driver") +
                   (direction == 0   ? ", one way"
                    : direction == 1 ? ", the other way"
                                     : ""));
    const std::string here = machine->address();
    const Duration healed = length + universe_.Between(Duration::zero(), milliseconds(1500));
    for (const std::string& other : others) {
      machine->Disturbed();
      if (direction != 1) {
        site_.network.Cut(here, other);
      }
      if (direction != 0) {
        site_.network.Cut(other, here);
      }
    }
    universe_.At(healed, [this, here, others, machine = machine.get()] {
      universe_.Note("machine " + machine->host().value + " is connected again");
      machine->Disturbed();
      for (const std::string& other : others) {
        site_.network.Heal(here, other);
        site_.network.Heal(other, here);
      }
    });
  }
}

void JobSim::FaultOnDiscovery() {
  listed_ = all_hosts_;
  for (discovery::ListedHost& host : listed_) {
    if (universe_.Chance(40)) {
      host.slots = static_cast<uint32_t>(universe_.Below(4));
    }
  }
  std::erase_if(listed_, [&](const auto&) { return universe_.Chance(25); });
  universe_.Note("discovery changes");
  listing_changed_ = true;
  if (universe_.Chance(50)) {
    universe_.At(universe_.Between(milliseconds(500), seconds(6)), [this] {
      universe_.Note("discovery is as before");
      listed_ = all_hosts_;
    });
  }
}

void JobSim::FaultOnDriver() {
  const uint64_t kind = universe_.Below(10);
  if (kind < 7) {
    universe_.Note("the driver is stopped");
    universe_.Stop(site_.driver_process);
    universe_.At(universe_.Between(milliseconds(100), seconds(5)), [this] {
      universe_.Note("the driver goes on");
      universe_.Continue(site_.driver_process);
    });
  } else if (kind < 9) {
    stop_asked_ = true;
    universe_.Note("SIGTERM to the driver");
    site_.signal_driver(15);
  } else {
    KillDriver();
  }
}

void JobSim::Heal() {
  universe_.Note("all is healed");
  healed_ = true;
  listed_ = all_hosts_;
  site_.program.crash_at_start = 0;
  site_.program.slow_start = 0;
  site_.program.crash_at_end = 0;
  site_.program.fork_fails = 0;
  site_.stream_breaks = 0;
  site_.network.HealAll();
  universe_.Continue(site_.driver_process);
  for (const auto& [host, machine] : site_.machines) {
    machine->ContinueAgent();
  }
  for (SimWorker* worker : site_.Living()) {
    worker->Continue();
  }
}

}  // namespace muster::sim
