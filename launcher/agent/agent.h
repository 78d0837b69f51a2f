#pragma once

// Agent: one host's part of a job, in the agent proper. It performs the driver's orders on the
// workers of this host and reports what it sees of them; it decides nothing about the world.
//
// Threads: everything on the loop thread. gRPC's threads, the watch of the robust mutexes and the
// output forwarder only post to it. Nothing here waits for a worker or for the driver.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "common/loop.h"
#include "common/process.h"
#include "common/status.h"
#include "launcher/agent/alive_watch.h"
#include "launcher/agent/driver_session.h"
#include "launcher/agent/output_forwarder.h"
#include "launcher/agent/page_server.h"
#include "launcher/agent/process_table.h"
#include "launcher/agent/segment_store.h"
#include "launcher/agent/silence_judge.h"
#include "launcher/agent/worker_service.h"
#include "muster/v1/agents.pb.h"
#include "muster/v1/workers.pb.h"

namespace muster::launcher {

struct AgentOptions {
  std::string host;
  std::string job;
  std::string directory;  // Of the sockets; exists, mode 0700.
  std::string start;      // AgentBootstrap.start.
  uint32_t slots = 0;     // What an agent that dials in offers; else 0.
};

class Agent {
 public:
  struct Callbacks {
    std::function<void()> finished;  // After StopAgent: all workers gone, reports and output out.
    std::function<void(const Status&)> abandoned;  // The session ended before: end everything.
    std::function<void(Instant end)> leased;       // DriverSession's.
  };

  Agent(Loop& loop, AgentOptions options, DriverSession::Options driver, Callbacks callbacks);
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  /// Opens the sockets, then attaches to the driver.
  Status Start();
  /// SIGCHLD arrived.
  void OnChildSignal() { processes_.OnChildSignal(); }
  /// SIGTERM arrived: asks the driver, once, to drain this host.
  void RequestDrain();
  /// A driver has taken it in.
  bool welcomed() const { return welcomed_; }

 private:
  enum class Phase : uint8_t {
    kStarted,  // Its process runs.
    kJoined,   // It called init(); the robust mutex is watched.
    kLeaving,  // It said goodbye.
    kLost,     // It is dying, frozen or silent, and was killed.
  };
  struct Worker {
    uint32_t slot = 0;
    std::string key;
    bool newcomer = false;
    pid_t pid = 0;  // Of the started process, which may be a shell around the worker.
    Phase phase = Phase::kStarted;
    bool refused = false;
    bool unlocked = false;             // The robust mutex, on purpose.
    std::optional<ExitStatus> exit;    // Its process and all that belonged to it are gone.
    std::shared_ptr<SharedPage> page;  // Null until the worker asked; shared with the watch.
    PageClient client;                 // The process that has the page.
    SilenceJudge silence;
    StreamId stream;
    // The driver hears of the join once the worker listens where all can reach it.
    std::optional<v1::WorkerJoined> held_join;
    uint64_t generation = 0;  // Of the newest world it was told of.
    uint32_t rank = 0;        // There.
    bool revoked = false;     // It was told that this world is over.
    bool done = false;
    bool kill_ordered = false;
  };

  void OnOrder(const v1::AgentOrder& order);
  void Perform(const v1::Welcome& welcome);
  void Perform(const v1::SpawnWorker& order);
  void Perform(const v1::KillWorker& order);
  void Perform(const v1::AskSuspects& order);
  void Perform(const v1::Refuse& order);
  void Perform(const v1::Drain& order);
  void Perform(const v1::FormWorld& order);
  void Perform(const v1::Revoke& order);
  void Perform(const v1::NotifyPending& order);
  void Perform(const v1::Release& order);
  void Perform(const v1::Admit& order);
  void Perform(const v1::StopAgent& order);
  void Perform(const v1::SignalWorkers& order);
  void Perform(const v1::OpenListeners& order);
  void TellRevoked(uint64_t generation, const std::string& reason);
  void TellWorld(Incarnation id, const v1::FormWorld& order, const v1::Placement& placement);
  Result<pid_t> StartProcess(const v1::SpawnWorker& order, const std::string& key);

  void OnExecuted(Incarnation id, const Status& status);
  void ReportSpawnFailed(Incarnation id, const Status& status);
  Result<std::shared_ptr<SharedPage>> OnPageAsked(Incarnation id,
                                                  std::string_view key,
                                                  PageClient client);
  void OnSegmentAsked(const SegmentAsk& ask, SegmentStore::Reply reply);
  Status CheckSegmentAsk(const SegmentAsk& ask) const;
  void OnWorkerReport(StreamId stream, const v1::WorkerReport& report);
  void OnJoin(StreamId stream, const v1::WorkerReport::Join& join);
  grpc::Status CheckJoin(const v1::WorkerReport::Join& join) const;
  void OnListening(Incarnation id, const v1::WorkerReport::Listening& listening);
  void StopAwaitingListener(Incarnation id);
  bool ListensEverywhere(const v1::WorkerReport::Join& join) const;
  void ReportJoined(v1::WorkerJoined joined);
  void OnStreamBroken(StreamId stream);
  void OnAliveEnded(Incarnation id, AliveState state);
  void OnOwnerDied(Incarnation id, Worker& worker);
  static SilenceSample SampleOf(const Worker& worker);
  static SilenceVerdict JudgeSilence(Worker& worker, Instant now);
  /// Gives the number of workers that want to run and get no CPU.
  uint32_t LoseTheSilent();
  void Lose(Incarnation id, Worker& worker, v1::WorkerLost::Kind kind, const std::string& evidence);
  void RevokeWithout(const Worker& lost, const std::string& evidence);
  void OnExited(Incarnation id, ExitStatus status);
  void AfterLastReport(const Worker& worker, const Loop::Callback& report);
  void ReportBye(Incarnation id);
  void ReportExit(Incarnation id);
  void OnConnected(std::shared_ptr<grpc::Channel> channel);
  void OnSessionEnded(const Status& status);

  bool IsNewcomer(const v1::SpawnWorker& order) const { return order.newcomer() || world_formed_; }
  Worker* Find(Incarnation id);
  bool IsAlive(Incarnation id);
  void Tell(Incarnation id, v1::WorkerOrder order);
  /// Like Loop::After, but not once this object is gone.
  void After(Duration delay, Loop::Callback callback);
  void SendSummary();
  void FinishWhenEmpty();
  void FlushAndFinish();
  void Finish();

  Loop& loop_;
  const AgentOptions options_;
  Callbacks callbacks_;
  // shared_ptr: closures that outlive this object in the loop's queue see that it is gone.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  v1::Welcome welcome_;
  bool welcomed_ = false;
  bool world_formed_ = false;  // Here, at least once.
  bool drain_requested_ = false;
  bool stopping_ = false;
  bool flushing_ = false;
  bool finished_ = false;
  std::vector<std::string> listen_;  // Literals with port 0; empty: loopback.
  // By address: workers that were told to listen there and have not said so yet.
  std::map<std::string, std::set<Incarnation>> opening_;
  std::map<Incarnation, Worker> workers_;  // Until they have exited.
  std::map<StreamId, Incarnation> streams_;
  LocalProcessTable processes_;
  PageServer pages_;
  SegmentStore segments_;
  WorkerService service_;
  DriverSession driver_;
  OutputForwarder output_;
  AliveWatch watch_;
};

}  // namespace muster::launcher
