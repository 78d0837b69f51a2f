#pragma once

// Engine: the thread that stands for this worker towards its agent and its peers. It holds the
// robust mutex, ticks the page, obeys the agent's orders, forms generations and runs the session
// of the newest one. No user code is ever waited for here, and no peer.
//
// Threads: the public functions from any; everything else on the engine's loop, which never blocks.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/loop.h"
#include "muster/v1/workers.pb.h"
#include "worker/bulletin.h"
#include "worker/call.h"
#include "worker/executor.h"
#include "worker/formation.h"
#include "worker/link_acceptor.h"
#include "worker/listen_plan.h"
#include "worker/page_client.h"
#include "worker/rendezvous_client.h"
#include "worker/session.h"

namespace muster::worker {

/// How a worker finds its agent.
struct AgentAccess {
  std::string directory;
  std::string key;
  uint64_t incarnation = 0;
};

struct EngineOptions {
  std::optional<AgentAccess> agent;  // None: a world of one.
  std::string host = "localhost";
  int slot = 0;
  ListenPlan listen;
  std::chrono::milliseconds operation_timeout = std::chrono::seconds(30);
  /// Ends the process at once, without any clean-up; tests swap it.
  std::function<void(int code, const std::string& why)> end_process;
};

class Engine {
 public:
  /// `bulletin` outlives the engine.
  Engine(EngineOptions options, Bulletin& bulletin);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Shakes hands with the agent and starts the threads; the rest is told by the bulletin.
  Status Start();

  void Submit(std::shared_ptr<Call> call);
  void Report(v1::WorkerReport report);
  /// The user's thread has left its generation without an order to do so.
  void AbandonGeneration(Generation generation);
  /// shutdown(): says goodbye and ends the threads. Waits for Release on rank 0.
  void Shutdown(bool done);

  bool has_agent() const { return options_.agent.has_value(); }

 private:
  void Run();
  bool Join();
  /// init() throws this.
  void Fail(const std::string& why);
  void Tick();

  void OnOrder(const v1::WorkerOrder& order);
  void OnJoined(const v1::WorkerOrder::Joined& order);
  Status ListenAlsoAt(const v1::Address& address);
  void ReportListening();
  void OnWorld(const v1::WorkerOrder::World& order);
  void OnRevoked(Generation generation, const std::string& reason);
  void OnReleased();
  void OnStreamEnd(const std::string& reason);

  void FormAlone();
  void Form(Place place, FormationPlan plan);
  void OnFormed(const Place& place, FormedLinks links);
  /// Ends everything of this generation and older, and tells the user's threads.
  void EndGenerations(Generation generation, const std::string& reason);
  void EndSession(const std::string& reason);
  void ReportBroken(Generation generation, const BrokenReport& report);

  void SubmitQueued();
  void CloseQueue();
  void BeginShutdown(bool done);
  void FinishShutdown();
  void SendBye();
  void StopLoop();
  void Retire(std::shared_ptr<void> object);
  void EndProcess(const std::string& why);

  const EngineOptions options_;
  Bulletin& bulletin_;
  Loop loop_;
  Executor executor_;
  std::jthread thread_;

  // The loop's.
  std::unique_ptr<PageClient> page_;
  std::unique_ptr<RendezvousClient> client_;
  std::unique_ptr<LinkAcceptor> acceptor_;
  std::string host_;
  int slot_ = 0;
  SessionTimes times_;
  bool joined_ = false;
  bool stream_ended_ = false;
  bool bye_sent_ = false;
  Generation newest_;  // Ordered or revoked; older orders are stale.
  std::unique_ptr<Formation> formation_;
  std::unique_ptr<Session> session_;
  size_t draining_sessions_ = 0;
  enum class Ending : uint8_t { kNo, kLeaving, kClosing } ending_ = Ending::kNo;

  Mutex mutex_;
  std::vector<std::shared_ptr<Call>> queued_ MUSTER_GUARDED_BY(mutex_);
  bool closed_ MUSTER_GUARDED_BY(mutex_) = false;  // Nobody takes from the queue any more.
};

}  // namespace muster::worker
