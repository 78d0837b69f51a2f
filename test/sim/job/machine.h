#pragma once

// Machine: one host of a simulated job: an agent at a time, with its reaper and the remote shell
// that has started it, and their rules about who ends whom (launcher/agent/agent_process.cc,
// reaper.cc). Several local hosts share the driver's address.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/ids.h"
#include "launcher/agent/agent.h"
#include "test/sim/job/universe.h"

namespace muster::sim {

class Site;

class Machine {
 public:
  /// What AgentStarter sees of a start.
  struct Starter {
    Duration timeout{};
    /// The first process, or the remote shell, is over.
    std::function<void(int code, bool farewell)> ended;
  };

  Machine(
      Site& site, HostId host, uint32_t slots, bool local, int64_t drift_ppm, std::string address);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  const HostId& host() const { return host_; }
  uint32_t slots() const { return slots_; }
  bool local() const { return local_; }
  const std::string& address() const { return address_; }
  bool has_agent() const { return run_ != nullptr; }
  bool agent_stopped() const { return run_ != nullptr && run_->process->stopped; }
  /// Nothing was done to its agent or its connection for so long, and both are well.
  bool WellFor(Duration time) const;
  /// Something was done to it.
  void Disturbed();

  // For AgentStarter.
  void StartAgent(const v1::AgentBootstrap& bootstrap, Starter starter);
  /// Standard input of the agent ends: the lifeline.
  void EndInput();
  /// The group of its first process, or the remote shell, is killed.
  void KillStarted();

  // Faults.
  void KillAgent();  // The agent proper.
  void KillReaper();
  void KillAgentAndReaper();
  void StopAgent();
  void ContinueAgent();
  void Terminate();  // SIGTERM to the agent: drain this host.
  /// Everything on it is gone without a word; it cannot be started for a while.
  void Reboot(Duration down);
  /// The driver's process has ended.
  void OnDriverGone();
  /// Once no process of its workers is left: what a sweep waits for.
  void WhenWorkersGone(Action action);

 private:
  struct Run {
    uint64_t number = 0;
    ProcessPtr process;
    std::unique_ptr<Loop> loop;
    std::unique_ptr<launcher::Agent> agent;
    std::string directory;
    bool remote = false;
    bool reaper = true;
    bool shell = true;  // The remote shell lives, or there is none and never was.
    Starter starter;
    Instant lease_end = Instant::max();
    bool ending = false;
  };

  void Boot(uint64_t number, const v1::AgentBootstrap& bootstrap);
  void Begin(uint64_t number, const v1::AgentBootstrap& bootstrap);
  void WatchLease(uint64_t number);
  void EndEverything(const std::string& why);
  void EndRun(int code, bool swept);
  void KillWorkers(const std::string& directory, const std::string& why);
  void TellStarter(int code, bool farewell);
  void DestroyLater(std::shared_ptr<Run> run);

  Site& site_;
  const HostId host_;
  const uint32_t slots_;
  const bool local_;
  const int64_t drift_ppm_;
  const std::string address_;
  uint64_t last_run_ = 0;
  std::shared_ptr<Run> run_;  // Shared with closures that end it.
  Instant down_until_{};
  Instant disturbed_{};
};

}  // namespace muster::sim
