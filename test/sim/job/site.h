#pragma once

// Site: all machines of one simulated job and what runs on them, as the edges see it: who answers
// at which address, path or pid. It has no opinion about the job; see JobSim for faults and checks.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/ids.h"
#include "discovery/host_source.h"
#include "launcher/agent/page_server.h"
#include "launcher/driver/agent_sessions.h"
#include "launcher/incident/incident.h"
#include "test/sim/job/connection.h"
#include "test/sim/job/machine.h"
#include "test/sim/job/network.h"
#include "test/sim/job/universe.h"

namespace muster::sim {

class SimGeneration;
class SimWorker;
class WorkerPort;

/// Where a worker asks its agent for its page.
struct PagePort {
  const void* owner = nullptr;
  Loop* loop = nullptr;
  std::function<Result<std::shared_ptr<launcher::SharedPage>>(
      Incarnation worker, std::string_view key, launcher::PageClient client)>
      ask;
};

/// Where agents reach the driver, while it lives.
struct DriverPort {
  ProcessPtr process;
  Loop* loop = nullptr;
  launcher::AgentSessions* sessions = nullptr;
};

/// What the job's program does, and how it fails. Chances in percent, of each worker.
struct ProgramPlan {
  uint64_t steps = 10;
  Duration step_min = std::chrono::milliseconds(20);
  Duration step_max = std::chrono::milliseconds(150);
  uint64_t crash_at_start = 0;
  uint64_t slow_start = 0;
  uint64_t crash_at_end = 0;
  uint64_t fork_fails = 0;
  bool ignores_term = false;
  bool checks_between = false;  // check_host_updates() between commits.
};

/// Told of everything that the rules speak of.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void OnProcessStarted(const SimWorker& worker) = 0;
  virtual void OnCame(const SimWorker& worker, const SimGeneration& generation) = 0;
  virtual void OnWarm(const SimWorker& newcomer) = 0;
  virtual void OnSynced(const SimWorker& worker, CommitId commit, bool fresh) = 0;
  virtual void OnCommitted(const SimWorker& worker, CommitId commit, uint64_t step) = 0;
  virtual void OnDone(const SimWorker& worker) = 0;
};

class Site {
 public:
  Site(Universe& of, Observer& observed_by);
  ~Site();
  Site(const Site&) = delete;
  Site& operator=(const Site&) = delete;

  /// The one that exists.
  static Site& Get();

  Machine& AddMachine(const HostId& host, uint32_t slots, bool local, int64_t drift_ppm);
  Machine* Find(const HostId& host);
  /// All that have not ended.
  std::vector<SimWorker*> Living() const;
  SimWorker* FindWorker(int pid) const;
  std::shared_ptr<SimGeneration> GenerationOf(uint64_t number,
                                              const std::string& link_key,
                                              uint32_t size);
  /// The driver's process is killed: what hung on it notices.
  void LoseDriver();

  Universe& universe;
  Observer& observer;
  Network network;
  ProgramPlan program;
  bool fork_failed = false;
  uint64_t stream_breaks = 0;  // Per thousand messages between machines.

  ProcessPtr driver_process;
  std::optional<DriverPort> driver;
  std::function<void(int signal)> signal_driver;      // JobSignals.
  std::function<Result<discovery::HostList>()> poll;  // What discovery says now.
  std::vector<launcher::Incident> incidents;

  std::vector<std::weak_ptr<Connection>> connections;
  std::map<std::string, PagePort> pages;                  // By path of the socket.
  std::map<std::string, WorkerPort*> ports;               // Likewise.
  std::map<const launcher::SharedPage*, Action> watches;  // Called once its mutex is not held.
  std::vector<std::unique_ptr<SimWorker>> workers;        // All that ever were, by start.
  std::map<uint64_t, std::shared_ptr<SimGeneration>> generations;
  std::map<HostId, std::unique_ptr<Machine>> machines;
};

}  // namespace muster::sim
