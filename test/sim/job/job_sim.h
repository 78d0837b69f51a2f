#pragma once

// JobSim: one whole job in virtual time. The production driver, agents and elastic programs run
// over the edges of this folder; the seed draws the job, and what goes wrong. After everything that
// the rules speak of they are checked; then all heals, and the job has to come to an end.
//
// One seed gives one story. Not a model of speed.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/cli/options.h"
#include "test/sim/job/site.h"
#include "test/sim/job/universe.h"

namespace muster::sim {

class JobSim final : private Observer {
 public:
  struct Options {
    uint64_t seed = 1;
    uint64_t steps_max = 0;  // Events after which the story is broken off; 0: never.
    bool keep_log = false;
  };

  explicit JobSim(const Options& options);
  ~JobSim() override;

  /// Runs the story. Empty if all went as it must; else what was wrong.
  std::string Run();

  /// Nothing: the driver was killed, or the story was broken off.
  const std::optional<int>& exit_code() const { return exit_code_; }
  uint64_t events() const { return universe_.events(); }
  uint64_t worlds() const { return site_.generations.size(); }
  uint64_t faults() const { return faults_; }
  const std::vector<std::string>& log() const { return universe_.log(); }

 private:
  struct Commit {
    uint64_t step = 0;
    Instant at;
  };

  // job_sim.cc
  void Draw();
  void DrawHosts();
  void RunDriver();
  void AwaitQuiet();
  Result<discovery::HostList> Poll();

  // job_faults.cc
  void PlanFaults();
  void Fault();
  void FaultOnWorker();
  void FaultOnAgent();
  void FaultOnNetwork();
  void FaultOnDiscovery();
  void FaultOnDriver();
  void KillDriver();
  void Pause(SimWorker& worker, Duration time);
  void CutSome();
  void Heal();
  Machine& AnyMachine();
  SimWorker* AnyWorker();

  // job_checks.cc
  void OnProcessStarted(const SimWorker& worker) override;
  void OnCame(const SimWorker& worker, const SimGeneration& generation) override;
  void OnWarm(const SimWorker& newcomer) override { ExpectTakenIn(newcomer); }
  void OnSynced(const SimWorker& worker, CommitId commit, bool fresh) override;
  void OnCommitted(const SimWorker& worker, CommitId commit, uint64_t step) override;
  void OnDone(const SimWorker& worker) override;
  bool Counts(const SimWorker& worker) const;
  void ExpectEnded(const SimWorker& worker);
  void ExpectFrozenLost(const SimWorker& worker);
  void ExpectTakenIn(const SimWorker& worker);
  void ExpectCarriedOn(const SimWorker& holder, CommitId held, Generation passed_by);
  void CheckIncidents();
  void CheckExitCode(int code);
  void CheckDriversMachine();
  void CheckEnd();

  Universe universe_;
  Site site_;
  launcher::RunOptions options_;
  bool remote_ = false;  // Some hosts are other machines.
  bool healed_ = false;
  bool plain_ = false;  // Without faults the job succeeds.
  bool stop_asked_ = false;
  bool exited_early_ = false;  // With 0, before it had joined.
  bool listing_changed_ = false;
  bool drained_ = false;
  uint64_t faults_ = 0;
  std::optional<int> exit_code_;

  // Discovery.
  std::vector<discovery::ListedHost> all_hosts_;
  std::vector<discovery::ListedHost> listed_;
  bool polled_ = false;

  // What has happened.
  std::map<CommitId, Commit> commits_;
  Instant last_commit_{};
  bool state_heard_of_ = false;  // The driver knows that steps were made.
  bool anybody_done_ = false;
  std::set<Incarnation> frozen_;  // Were stopped for longer than anybody has to bear.
};

}  // namespace muster::sim
