#include "test/sim/job/machine.h"

#include <algorithm>
#include <utility>

#include "test/sim/job/sim_worker.h"
#include "test/sim/job/site.h"

namespace muster::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// launcher/agent/reaper.cc
constexpr Duration kLeaseMargin = milliseconds(500);
constexpr Duration kLeaseLook = milliseconds(250);
constexpr Duration kAgentDeadline = seconds(1);
constexpr int kExitAbandoned = 1;
constexpr int kKilled = 137;
constexpr int kShellBroke = 255;

}  // namespace

Machine::Machine(
    Site& site, HostId host, uint32_t slots, bool local, int64_t drift_ppm, std::string address)
    : site_(site),
      host_(std::move(host)),
      slots_(slots),
      local_(local),
      drift_ppm_(drift_ppm),
      address_(std::move(address)) {}

Machine::~Machine() = default;

// ---------------------------------------------------------------- start

void Machine::StartAgent(const v1::AgentBootstrap& bootstrap, Starter starter) {
  const uint64_t number = ++last_run_;
  auto run = std::make_shared<Run>();
  run->number = number;
  run->remote = bootstrap.remote();
  run->starter = std::move(starter);
  run->directory = "/sim/" + host_.value + "/" + std::to_string(number);
  run->process = site_.universe.NewProcess("agent of " + host_.value, address_, drift_ppm_);
  if (run_ != nullptr) {
    // Across a network an earlier one may still be about to end. It goes on by itself.
    DestroyLater(run_);
  }
  run_ = run;
  const bool reachable =
      site_.universe.now() >= down_until_ && site_.network.Connected(kDriverMachine, address_);
  if (run->remote && !reachable) {
    site_.universe.At(site_.universe.Between(milliseconds(100), seconds(3)), [this, number] {
      if (run_ != nullptr && run_->number == number) {
        EndRun(kShellBroke, false);
      }
    });
    return;
  }
  const Duration delay = run->remote ? site_.universe.Between(milliseconds(20), milliseconds(800))
                                     : site_.universe.Between(milliseconds(2), milliseconds(60));
  site_.universe.In(run->process, delay, [this, number, bootstrap] { Boot(number, bootstrap); });
}

void Machine::Boot(uint64_t number, const v1::AgentBootstrap& bootstrap) {
  if (run_ == nullptr || run_->number != number || run_->ending) {
    return;
  }
  // The first process does so before it forks the agent proper.
  KillWorkers("", "an earlier agent of this host");
  WhenWorkersGone([this, number, bootstrap] {
    if (run_ != nullptr && run_->number == number && !run_->ending) {
      site_.universe.In(
          run_->process, Duration::zero(), [this, number, bootstrap] { Begin(number, bootstrap); });
    }
  });
}

void Machine::Begin(uint64_t number, const v1::AgentBootstrap& bootstrap) {
  if (run_ == nullptr || run_->number != number || run_->ending) {
    return;
  }
  Run& run = *run_;
  site_.universe.Note("the agent of " + host_.value + " starts");
  Disturbed();
  run.loop = std::make_unique<Loop>();
  launcher::DriverSession::Options driver;
  for (const v1::Address& address : bootstrap.driver()) {
    driver.addresses.push_back(address.literal());
  }
  driver.secret = bootstrap.secret();
  driver.remote = bootstrap.remote();
  launcher::AgentOptions options;
  options.host = host_.value;
  options.job = bootstrap.job_id();
  options.directory = run.directory;
  options.start = bootstrap.start();
  run.agent = std::make_unique<launcher::Agent>(
      *run.loop,
      options,
      driver,
      launcher::Agent::Callbacks{[this, number] {
                                   if (run_ != nullptr && run_->number == number) {
                                     KillWorkers(run_->directory, "their agent has finished");
                                     EndRun(0, true);
                                   }
                                 },
                                 [this, number](const Status& status) {
                                   if (run_ != nullptr && run_->number == number) {
                                     EndEverything(status.ok() ? "the driver ended the stream"
                                                               : status.message());
                                   }
                                 },
                                 [this, number](Instant end) {
                                   if (run_ != nullptr && run_->number == number) {
                                     run_->lease_end = end;
                                   }
                                 }});
  if (const Status started = run.agent->Start(); !started.ok()) {
    site_.universe.Wrong("an agent does not start: " + started.message());
  }
  if (run.remote) {
    WatchLease(number);
  }
}

// The reaper's look at the lease page, by its machine's clock.
void Machine::WatchLease(uint64_t number) {
  site_.universe.At(kLeaseLook, [this, number] {
    if (run_ == nullptr || run_->number != number || !run_->reaper || !run_->process->alive) {
      return;
    }
    const int64_t since = site_.universe.now().time_since_epoch().count();
    const Instant clock = site_.universe.now() + Duration(since * drift_ppm_ / 1'000'000);
    if (run_->lease_end != Instant::max() && clock > run_->lease_end + kLeaseMargin) {
      EndEverything("the lease is over, and the agent has not kept to it");
      return;
    }
    WatchLease(number);
  });
}

// ---------------------------------------------------------------- ends

void Machine::EndEverything(const std::string& why) {
  site_.universe.Note("host " + host_.value + ": everything ends: " + why);
  KillWorkers(run_->remote ? run_->directory : "", why);
  EndRun(kExitAbandoned, true);
}

// `swept`: whoever ended last has seen that nothing is left.
void Machine::EndRun(int code, bool swept) {
  const std::shared_ptr<Run> run = std::exchange(run_, nullptr);
  run->ending = true;
  DestroyLater(run);
  if (!run->starter.ended || !run->shell) {
    return;
  }
  const auto tell = [this, run, code, swept] {
    const auto ended = [ended = run->starter.ended, code, swept] { ended(code, swept); };
    if (run->remote && !site_.network.Connected(address_, kDriverMachine)) {
      site_.network.OnHeal(ended);
    } else {
      site_.universe.At(site_.universe.Between(milliseconds(1), milliseconds(20)), ended);
    }
  };
  if (swept) {
    WhenWorkersGone(tell);
  } else {
    tell();
  }
}

void Machine::WhenWorkersGone(Action action) {
  const bool gone =
      std::all_of(site_.workers.begin(), site_.workers.end(), [&](const auto& worker) {
        return worker->machine() != this || worker->alive() || worker->gone();
      });
  site_.universe.At(
      milliseconds(2), gone ? action : [this, action] { WhenWorkersGone(action); });
}

void Machine::DestroyLater(std::shared_ptr<Run> run) {
  site_.universe.End(run->process);
  site_.universe.At(Duration::zero(), [run] {
    run->agent.reset();
    run->loop.reset();
  });
}

// Of this directory's agent; empty: of all agents that ever were on this host.
void Machine::KillWorkers(const std::string& directory, const std::string& why) {
  for (SimWorker* worker : site_.Living()) {
    if (worker->machine() == this && (directory.empty() || worker->directory() == directory)) {
      worker->Kill(9, why);
    }
  }
}

void Machine::EndInput() {
  if (run_ == nullptr) {
    return;
  }
  if (!run_->remote) {
    OnDriverGone();
    return;
  }
  // OnShellGone: before the welcome there is no use for it.
  const bool welcomed = run_->agent != nullptr && run_->agent->welcomed();
  if (!welcomed && site_.network.Connected(kDriverMachine, address_)) {
    EndRun(kExitAbandoned, false);
  }
}

void Machine::KillStarted() {
  if (run_ == nullptr) {
    return;
  }
  if (!run_->remote) {
    KillAgentAndReaper();
    return;
  }
  // The remote shell alone.
  const std::shared_ptr<Run> run = run_;
  if (std::exchange(run->shell, false)) {
    site_.universe.At(milliseconds(1), [ended = run->starter.ended] { ended(kKilled, false); });
  }
  EndInput();
}

void Machine::OnDriverGone() {
  if (run_ == nullptr || run_->remote) {
    return;
  }
  const uint64_t number = run_->number;
  const auto end = [this, number] {
    if (run_ != nullptr && run_->number == number) {
      EndEverything("the driver is gone");
    }
  };
  site_.universe.In(run_->process, milliseconds(2), end);
  site_.universe.At(kAgentDeadline + milliseconds(5), end);  // The reaper does it.
}

bool Machine::WellFor(Duration time) const {
  return run_ != nullptr && run_->agent != nullptr && run_->process->alive &&
         !run_->process->stopped && site_.universe.now() - disturbed_ > time &&
         site_.network.Connected(address_, kDriverMachine);
}

void Machine::Disturbed() {
  disturbed_ = site_.universe.now();
}

// ---------------------------------------------------------------- faults

void Machine::KillAgent() {
  Disturbed();
  if (run_ == nullptr) {
    return;
  }
  site_.universe.Note("the agent of " + host_.value + " is killed");
  site_.universe.End(run_->process);
  const uint64_t number = run_->number;
  site_.universe.At(site_.universe.Between(milliseconds(1), milliseconds(15)), [this, number] {
    if (run_ != nullptr && run_->number == number) {
      KillWorkers(run_->remote ? run_->directory : "", "their agent was killed");
      EndRun(kKilled, true);
    }
  });
}

void Machine::KillReaper() {
  Disturbed();
  if (run_ == nullptr) {
    return;
  }
  site_.universe.Note("the reaper of " + host_.value + " is killed");
  run_->reaper = false;
  const uint64_t number = run_->number;
  site_.universe.In(run_->process, milliseconds(1), [this, number] {
    if (run_ != nullptr && run_->number == number) {
      EndEverything("the first process of this agent is gone");
    }
  });
}

void Machine::KillAgentAndReaper() {
  Disturbed();
  if (run_ == nullptr) {
    return;
  }
  site_.universe.Note("agent and reaper of " + host_.value + " are killed");
  KillWorkers(run_->directory, "the kernel ends them with their agent");
  EndRun(kKilled, false);
}

void Machine::StopAgent() {
  Disturbed();
  if (run_ != nullptr) {
    site_.universe.Note("the agent of " + host_.value + " is stopped");
    site_.universe.Stop(run_->process);
  }
}

void Machine::ContinueAgent() {
  Disturbed();
  if (run_ != nullptr) {
    site_.universe.Continue(run_->process);
  }
}

void Machine::Terminate() {
  Disturbed();
  if (run_ == nullptr) {
    return;
  }
  site_.universe.Note("SIGTERM to the agent of " + host_.value);
  site_.universe.In(run_->process, milliseconds(1), [run = std::weak_ptr<Run>(run_)] {
    const std::shared_ptr<Run> now = run.lock();
    if (now != nullptr && now->agent != nullptr) {
      now->agent->RequestDrain();
    }
  });
}

void Machine::Reboot(Duration down) {
  Disturbed();
  site_.universe.Note("machine " + host_.value + " reboots");
  down_until_ = site_.universe.now() + down;
  KillWorkers("", "their machine reboots");
  if (run_ == nullptr) {
    return;
  }
  const std::shared_ptr<Run> run = std::exchange(run_, nullptr);
  run->ending = true;
  DestroyLater(run);
  if (run->starter.ended && run->shell) {
    // ssh sees nothing until the machine answers again that it knows no such connection.
    site_.universe.At(down, [ended = run->starter.ended] { ended(kShellBroke, false); });
  }
}

}  // namespace muster::sim
