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
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "common/loop.h"
#include "muster/v1/workers.pb.h"
#include "worker/bulletin.h"
#include "worker/call.h"
#include "worker/collective_options.h"
#include "worker/executor.h"
#include "worker/formation.h"
#include "worker/link_acceptor.h"
#include "worker/listen_plan.h"
#include "worker/page_client.h"
#include "worker/rendezvous_client.h"
#include "worker/session.h"
#include "worker/shm/segment_client.h"

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
  CollectiveOptions collective;
  std::vector<std::vector<int32_t>> process_sets;  // Of a job's first world.
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

  /// Of one generation; at least one.
  void Submit(std::span<const std::shared_ptr<Call>> calls);
  /// Does what completes the operation, if nobody else does.
  void HelpComplete(const Operation& operation, Generation generation);
  /// The session of the generation at work; null: there is none. Shared with whoever is inside.
  std::shared_ptr<Session> current() const;
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
  /// The agent says it over the page's connection.
  void OnOver();
  void OnReleased();
  void OnStreamEnd(const std::string& reason);

  void FormAlone();
  void Form(Place place, FormationPlan plan);
  void AskForSegment(const Place& place);
  void OnFormed(const Place& place, FormedWorld world);
  void PinThreads(const Place& place);
  /// Ends everything of this generation and older, and tells the user's threads.
  void EndGenerations(Generation generation, const std::string& reason);
  void EndSession(const std::string& reason);
  void ReportBroken(Generation generation, const BrokenReport& report);

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
  SessionOptions session_options_;
  bool joined_ = false;
  bool stream_ended_ = false;
  bool bye_sent_ = false;
  Generation newest_;  // Ordered or revoked; older orders are stale.
  std::unique_ptr<Formation> formation_;
  std::unique_ptr<SegmentClient> segment_client_;
  std::shared_ptr<Session> session_;  // Shared with threads of the user that are inside.
  std::vector<SetRecord> set_records_;
  int32_t next_set_id_ = 1;
  size_t draining_sessions_ = 0;
  enum class Ending : uint8_t { kNo, kLeaving, kClosing } ending_ = Ending::kNo;

  mutable Mutex mutex_;
  std::shared_ptr<Session> current_ MUSTER_GUARDED_BY(mutex_);  // session_, for other threads.
};

}  // namespace muster::worker
