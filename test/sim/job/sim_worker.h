#pragma once

// SimWorker: one worker process. Its program and everything that stands on worker::Runtime is
// production code (elastic::RunLoop, State, commits, sync); the engine below it is a model that
// obeys the agent's orders by the rules of worker/engine_orders.cc and worker/engine_runtime.cc.
// Collectives are SimGeneration's.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/process.h"
#include "launcher/agent/shared_page.h"
#include "muster/elastic.h"
#include "muster/v1/workers.pb.h"
#include "test/sim/job/fiber.h"
#include "test/sim/job/universe.h"
#include "worker/operation.h"
#include "worker/runtime.h"

namespace muster::sim {

class Machine;
class SimGeneration;
class Site;

class SimWorker final : public worker::Runtime, private OperationHelper {
 public:
  using Exited = std::function<void(ExitStatus status)>;

  /// `exited` is called once the process is gone. It stays in the site for ever.
  static SimWorker& Start(Site& site,
                          Incarnation id,
                          std::vector<std::string> environment,
                          Exited exited);
  ~SimWorker() override;

  Incarnation id() const { return id_; }
  pid_t pid() const { return process_->pid; }
  const ProcessPtr& process() const { return process_; }
  Machine* machine() const { return machine_; }
  const SlotId& slot() const { return slot_; }
  const std::string& directory() const { return directory_; }  // Of its agent's sockets.
  bool alive() const { return process_->alive; }
  bool gone() const { return gone_; }
  bool joined() const { return joined_; }
  bool in_elastic() const { return elastic_ && !done_; }
  bool done() const { return done_; }
  bool leaving() const { return shut_down_; }
  /// Was told to go: killed, refused, released, or got SIGTERM.
  bool doomed() const { return doomed_; }
  /// It was a member at work, with nothing done to it, when Muster ended it.
  bool ended_at_work() const { return ended_at_work_; }
  /// Since when the driver may have heard that it holds a commit.
  const std::optional<Instant>& holds_since() const { return holds_since_; }
  const std::optional<ExitStatus>& ended_with() const { return ended_with_; }
  bool is_newcomer() const { return newcomer_; }
  const std::optional<CommitId>& held() const { return held_; }
  Generation newest() const { return newest_; }
  /// Of which it is a member that can work; null: none.
  const std::shared_ptr<SimGeneration>& generation() const { return generation_; }
  uint32_t rank() const { return rank_; }
  /// Literals at which it was told to find rank 0 of its newest world.
  const std::vector<std::string>& coordinator() const { return coordinator_; }
  char state_letter() const;

  // Faults and signals.
  void Kill(int signal, const std::string& why);
  void Signal(int signal);
  void Stop();
  void Continue();
  /// How often it was stopped so far.
  uint64_t stops() const { return stops_; }
  /// The program calls exit(code) at its next chance.
  void ExitSoon(int code);
  /// Stopped, or dead, for so long that it has to be noticed; or it has failed by itself.
  bool failed() const { return failed_; }

  // For SimGeneration and the agent's page.
  void FormedSoon(uint64_t generation, Duration delay);
  void CompleteSoon(uint64_t generation,
                    worker::Submission submission,
                    std::shared_ptr<Operation> operation,
                    std::string result,
                    int64_t value,
                    Duration delay);
  void ReportBroken(uint64_t generation,
                    uint32_t suspect,
                    const std::string& evidence,
                    Duration delay);
  void TellOver(uint64_t generation, const std::string& reason);

  // worker::Runtime
  void Init(const std::vector<std::vector<int>>& process_sets) override;
  void Shutdown() override;
  const worker::Place& place() const override { return place_; }
  const Trace& trace() const override { return trace_; }
  Handle Submit(worker::Submission submission) override;
  Handle SubmitGroup(std::vector<worker::Submission> members) override;
  int64_t Value(Handle& handle) override;
  std::vector<int> SetRanks(ProcessSet) const override { return {}; }
  std::vector<ProcessSet> Sets() const override { return {{0}}; }
  uint64_t JoinedAgreements() const override { return 0; }
  bool PendingChange() const override { return pending_ || draining_; }
  void EnterElastic() override;
  void SetHeld(std::optional<CommitId> held) override;
  void Leave() override;
  worker::Awaited AwaitWorld() override;
  void ReportSynced(CommitId commit) override;
  void ReportDone() override;

 private:
  struct ProcessEnds {};  // Thrown through the program, which does not catch it.

  SimWorker(Site& site,
            Incarnation id,
            std::map<std::string, std::string> environment,
            Exited exited);

  // The program, in its fiber (sim_program.cc).
  void Main() noexcept;
  void Train(elastic::State& state);
  void CheckProgram(const std::string& when);
  [[noreturn]] void Exit(int code);
  void Sleep(Duration delay);
  void Wait(const std::function<bool()>& until);
  void Changed();
  void RunFiber();

  // The engine.
  void Join();
  void OnOrder(const v1::WorkerOrder& order);
  void OnWorld(const v1::WorkerOrder::World& order);
  void OnRevoked(uint64_t generation, const std::string& reason);
  void OnStreamEnded(const std::string& reason);
  void EndGenerations(Generation generation, const std::string& reason, bool died = false);
  void OnFormed();
  void Report(v1::WorkerReport report);
  void ReportListening();
  void EndProcess(const std::string& why);
  void Tick();
  void Die(ExitStatus status, bool unlocks, const std::string& why);
  void HelpComplete(const Operation& operation, uint64_t generation) override;

  Site& site_;
  Universe& universe_;
  const Incarnation id_;
  const std::map<std::string, std::string> environment_;
  const Exited exited_;
  Machine* machine_ = nullptr;
  SlotId slot_;
  std::string directory_;
  ProcessPtr process_;
  Trace trace_{""};

  // The program.
  std::unique_ptr<Fiber> fiber_;
  bool woken_ = false;
  bool dying_ = false;
  std::optional<int> exit_soon_;
  std::optional<ExitStatus> exit_;
  int64_t step_ = 0;
  std::array<int64_t, 4> weights_{};

  // The engine, and its bulletin.
  std::shared_ptr<launcher::SharedPage> page_;  // Shared with the agent.
  std::optional<Status> page_trouble_;
  std::optional<uint64_t> stream_;
  std::vector<std::string> addresses_;
  bool joined_ = false;
  std::optional<std::string> failure_;
  Generation newest_;
  Generation revoked_;
  std::string revoke_reason_;
  std::optional<worker::Place> told_;          // The place in generation_.
  std::shared_ptr<SimGeneration> generation_;  // Being formed, or at work.
  uint32_t rank_ = 0;
  std::vector<std::string> coordinator_;
  std::optional<worker::Place> formed_;
  std::optional<worker::Place> provisional_;
  bool pending_ = false;
  bool draining_ = false;
  bool released_ = false;
  // Submitted and not complete, with the generation of each.
  std::vector<std::pair<uint64_t, std::shared_ptr<Operation>>> outstanding_;

  // The runtime.
  worker::Place place_;
  bool newcomer_ = false;
  bool warm_reported_ = false;
  bool left_ = false;
  bool elastic_ = false;
  bool done_ = false;
  bool shut_down_ = false;
  std::optional<CommitId> held_;

  bool gone_ = false;
  bool doomed_ = false;
  bool failed_ = false;
  bool ended_at_work_ = false;
  uint64_t stops_ = 0;
  std::optional<Instant> holds_since_;
  std::optional<ExitStatus> ended_with_;
};

}  // namespace muster::sim
