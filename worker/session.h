#pragma once

// Session: one generation at work. It takes calls, agrees with the other members over the control
// star what is done in which order, and has the executor do it on the generation's backend. It
// reports broken peers and goes on waiting for the launcher's verdict; it never judges.
//
// Lifetime: from the end of the formation until End has drained; only then may it be destroyed.
// Threads: the loop's, except inside the executor's jobs, which touch only the backend and calls.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/loop.h"
#include "worker/call.h"
#include "worker/collective/backend.h"
#include "worker/control_messages.h"
#include "worker/core/log_follower.h"
#include "worker/core/sequencer.h"
#include "worker/executor.h"
#include "worker/formation.h"

namespace muster::worker {

struct SessionTimes {
  Duration stall_warning{};   // Zero: never.
  Duration stall_shutdown{};  // Zero: never.
  /// Runs once all ranks have submitted an operation.
  std::chrono::milliseconds operation = std::chrono::seconds(30);
};

struct BrokenReport {
  std::vector<uint32_t> suspects;
  bool stalled = false;
  std::string evidence;
};

class Session {
 public:
  struct Callbacks {
    std::function<void(BrokenReport report)> on_broken;
    /// Leave has come to its end: nobody needs this rank any more.
    std::function<void()> on_left;
  };

  /// `loop` and `executor` outlive the session.
  Session(Loop& loop,
          Executor& executor,
          const Place& place,
          SessionTimes times,
          FormedLinks links,
          Callbacks callbacks);
  ~Session();

  void Start();
  void Submit(const std::vector<std::shared_ptr<Call>>& calls);
  /// Looks for stalls; to be called a few times per second.
  void Tick();

  /// shutdown(): after Done the others are told in the log, and what was logged before is done;
  /// rank 0 then goes on coordinating until the others have finished or StopCoordinating.
  void Leave(bool done);
  void StopCoordinating();

  /// Everything pending completes with `error`, in milliseconds: what the executor has in its hands
  /// as soon as it lets go. Then `on_drained` is called, on the loop.
  void End(std::exception_ptr error, std::function<void()> on_drained);

  Generation generation() const { return generation_; }
  uint32_t rank() const { return rank_; }

 private:
  struct EntryVisitor;

  bool coordinates() const { return rank_ == 0; }
  void OnFrame(uint32_t rank, std::string_view frame);
  void OnRequests(uint32_t rank, const Requests& message);
  void OnBye(uint32_t rank, const Bye& message);
  void OnLinkBroken(uint32_t rank, const std::string& reason);
  void SendToCoordinator(const ControlMessage& message);
  void Publish();
  void Apply(const LogEntry& entry);
  void Execute(std::shared_ptr<Call> call, std::vector<int64_t> first_dims);
  void OnExecutionFailed(const std::shared_ptr<Call>& call, const Status& status);
  void Complete(const std::shared_ptr<Call>& call, std::exception_ptr error, bool agreed = false);
  std::shared_ptr<Call> TakeCall(Ticket ticket);
  void OnSelfFinished();
  void CheckLeft();
  void ReportLeft();
  void ReportBroken(BrokenReport report);

  Loop& loop_;
  Executor& executor_;
  const Generation generation_;
  const uint32_t rank_;
  const uint32_t size_;
  const SessionTimes times_;
  const Callbacks callbacks_;
  std::vector<std::unique_ptr<ControlLink>> links_;
  std::unique_ptr<Backend> backend_;

  std::unique_ptr<Sequencer> sequencer_;  // Rank 0 only.
  LogFollower follower_;
  std::map<Ticket, std::shared_ptr<Call>> calls_;  // Submitted, not yet in the log.
  Ticket next_ticket_ = 1;
  std::vector<std::shared_ptr<Call>> failed_;  // On a broken backend, until the verdict.
  std::set<uint32_t> reported_;                // Suspects that the launcher knows of.
  std::set<uint32_t> finished_;                // Members that have shut down after Done.
  std::set<uint32_t> departed_;                // Members that said Bye without Done.

  std::exception_ptr end_;  // Set by End.
  bool leaving_ = false;
  bool self_drained_ = false;  // Finished, and the executor has done what was logged before.
  bool stop_coordinating_ = false;
  bool left_ = false;
};

}  // namespace muster::worker
