#pragma once

// Session: one generation at work. It takes calls, agrees with the other members over the control
// star what is done in which order, and does it on the generation's backend. It reports broken
// peers and goes on waiting for the launcher's verdict; it never judges.
//
// One thread at a time *drives* the session: it moves messages through the rings of this host,
// follows the log and runs the backend. A user's thread that waits for an operation drives it
// itself if nobody does; while operations are under way that nobody waits for, the executor does.
// The loop's thread handles the sockets, and what came by them, under the same mutex.
//
// Shared, because a driver may still be inside when the engine has ended it. Destroyed after End.
// Threads: as said at each function.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/loop.h"
#include "common/mutex.h"
#include "worker/call.h"
#include "worker/collective/backend.h"
#include "worker/collective_runner.h"
#include "worker/control_messages.h"
#include "worker/core/log_follower.h"
#include "worker/core/sequencer.h"
#include "worker/executor.h"
#include "worker/formation.h"
#include "worker/shm/ring_star.h"

namespace muster::worker {

struct SessionOptions {
  Duration stall_warning{};   // Zero: never.
  Duration stall_shutdown{};  // Zero: never.
  /// Runs once all ranks have submitted an operation.
  std::chrono::milliseconds operation_timeout = std::chrono::seconds(30);
  size_t fusion_bytes = 128u << 20;
  uint32_t id_limit = 65536;
};

struct BrokenReport {
  std::vector<uint32_t> suspects;
  bool stalled = false;
  std::string evidence;
};

class Session : public std::enable_shared_from_this<Session> {
 public:
  /// On the loop.
  struct Callbacks {
    std::function<void(BrokenReport report)> on_broken;
    /// Leave has come to its end: nobody needs this rank any more.
    std::function<void()> on_left;
  };

  /// `loop` and `executor` outlive the session.
  Session(Loop& loop,
          Executor& executor,
          const Place& place,
          const SessionOptions& options,
          FormedWorld world,
          Callbacks callbacks);
  ~Session();

  // ---- on the loop

  void Start();
  /// Looks for stalls, and into the rings; to be called a few times per second.
  void Tick();
  /// shutdown(): after Done the others are told in the log, and what was logged before is done;
  /// rank 0 then goes on coordinating until the others have finished or StopCoordinating.
  void Leave(bool done);
  void StopCoordinating();
  /// Everything pending completes with `error`, in milliseconds: as soon as the backend lets go of
  /// what is being executed, for whoever gets the error may free or restore any memory. Then
  /// `on_drained` is called, on the loop.
  void End(std::exception_ptr error, std::function<void()> on_drained);

  // ---- from any thread

  /// In this order, and nothing between them.
  void Submit(std::span<const std::shared_ptr<Call>> calls);
  /// Drives until the operation is complete; returns at once if somebody else drives.
  /// Like everything that drives, it must not throw half way: nobody would drive any more.
  void HelpComplete(const Operation& operation) noexcept;
  ProcessSets sets() const;
  /// Agreements that passed while this rank was joined.
  uint64_t joined_agreements() const;
  /// Rank 0's; the others count nothing.
  LogCounters counters() const;

  Generation generation() const { return generation_; }
  uint32_t rank() const { return rank_; }
  const char* backend_name() const { return backend_name_; }

 private:
  struct EntryVisitor;
  enum class Driver : uint8_t { kNone, kUser, kExecutor };

  bool coordinates() const { return rank_ == 0; }

  // Driving (session_drive.cc).
  void DriveOnExecutor() noexcept;
  /// While calls keep coming, whoever makes them may be about to wait and drive.
  void Linger() MUSTER_REQUIRES(mutex_);
  void Drive(const std::function<bool()>& done, bool on_executor) noexcept;
  bool BeginDriving(Driver driver) MUSTER_REQUIRES(mutex_);
  void StopDriving() noexcept;
  /// If there is work that nobody may come to wait for, the executor drives.
  void EnsureDriver() MUSTER_REQUIRES(mutex_);
  /// Something has come up that a driver may be waiting for.
  void Notify();
  bool HasInput() const;
  void Run(const Job& job);
  void OnExecutionFailed(const Job& job, const Status& status) MUSTER_REQUIRES(mutex_);
  void FinishJob(const Job& job, const std::exception_ptr& error) MUSTER_REQUIRES(mutex_);
  bool HasWork() const MUSTER_REQUIRES(mutex_);
  std::vector<std::shared_ptr<Call>> TakeCallbacks() MUSTER_REQUIRES(mutex_);

  // Messages.
  void Progress() MUSTER_REQUIRES(mutex_);
  void OnFrame(uint32_t rank, std::string_view frame) MUSTER_REQUIRES(mutex_);
  void OnRequests(uint32_t rank, Requests message) MUSTER_REQUIRES(mutex_);
  void OnBye(uint32_t rank, const Bye& message) MUSTER_REQUIRES(mutex_);
  void OnLinkBroken(uint32_t rank, const std::string& reason) MUSTER_REQUIRES(mutex_);
  void Reject(uint32_t rank, const std::string& reason) MUSTER_REQUIRES(mutex_);
  /// `call`: even if nobody drives there, it must be read.
  void SendTo(uint32_t rank, std::string_view frame, bool call) MUSTER_REQUIRES(mutex_);
  void SendOnSocket(uint32_t rank, std::string frame) MUSTER_REQUIRES(mutex_);
  void FlushOutbox();
  void CheckFlushed();
  int MemberOf(uint32_t rank) const { return static_cast<int>(rank) - base_rank_; }

  // The log.
  void SubmitOne(const std::shared_ptr<Call>& call, Requests& out) MUSTER_REQUIRES(mutex_);
  void SendRequests(Requests message, bool call) MUSTER_REQUIRES(mutex_);
  void PublishIfDue() MUSTER_REQUIRES(mutex_);
  void Apply(const LogEntry& entry) MUSTER_REQUIRES(mutex_);
  void Execute(const worker::Execute& entry, const FollowStep& step) MUSTER_REQUIRES(mutex_);
  std::shared_ptr<const Group> GroupOf(int32_t set) MUSTER_REQUIRES(mutex_);
  void Finish(const std::shared_ptr<Call>& call, std::exception_ptr error, int64_t value = 0)
      MUSTER_REQUIRES(mutex_);
  void FinishTickets(const std::vector<Ticket>& tickets, std::exception_ptr error, int64_t value)
      MUSTER_REQUIRES(mutex_);
  void FinishAll(const std::exception_ptr& error) MUSTER_REQUIRES(mutex_);
  /// Null: it is complete already.
  std::shared_ptr<Call> TakeCall(Ticket ticket) MUSTER_REQUIRES(mutex_);
  void OnAgreedWhileJoined(bool vote) MUSTER_REQUIRES(mutex_);

  // The end.
  void OnSelfFinished() MUSTER_REQUIRES(mutex_);
  void CheckLeft() MUSTER_REQUIRES(mutex_);
  void ReportBroken(BrokenReport report) MUSTER_REQUIRES(mutex_);
  /// With End, once nobody is in the backend.
  void FinishEverything() MUSTER_REQUIRES(mutex_);

  Loop& loop_;
  Executor& executor_;
  const Generation generation_;
  const uint32_t rank_;
  const uint32_t size_;
  const SessionOptions options_;
  const Callbacks callbacks_;
  const Patience patience_;
  int base_rank_ = 0;  // Of the first member of this host.

  // The loop's.
  std::vector<std::unique_ptr<ControlLink>> links_;

  // The driver's, except Abort.
  std::shared_ptr<Segment> segment_;  // Shared with the backend. Null: no shared memory.
  std::unique_ptr<Backend> backend_;
  const char* backend_name_ = "";
  BellWord own_bell_{};  // Where there is no segment.
  Bell bell_;
  std::atomic<uint64_t> news_{0};  // Counts Notify.
  std::atomic<uint64_t> news_seen_{0};

  mutable Mutex mutex_;
  Driver driver_ MUSTER_GUARDED_BY(mutex_) = Driver::kNone;
  bool executor_scheduled_ MUSTER_GUARDED_BY(mutex_) = false;
  CondVar linger_;  // Somebody drives, callbacks are due, or the session ends.
  std::chrono::steady_clock::time_point last_submitted_ MUSTER_GUARDED_BY(mutex_);
  std::unique_ptr<RingStar> rings_ MUSTER_GUARDED_BY(mutex_);  // Null: sockets only.
  const RingStar* watched_rings_ = nullptr;                    // For HasInput.
  std::vector<std::pair<uint32_t, std::string>> outbox_ MUSTER_GUARDED_BY(mutex_);  // For sockets.
  bool flush_posted_ MUSTER_GUARDED_BY(mutex_) = false;
  bool sockets_flushed_ MUSTER_GUARDED_BY(mutex_) = true;
  bool progressing_ MUSTER_GUARDED_BY(mutex_) = false;

  std::unique_ptr<Sequencer> sequencer_ MUSTER_GUARDED_BY(mutex_);  // Rank 0 only.
  LogFollower follower_ MUSTER_GUARDED_BY(mutex_);
  // Submitted, not yet in the log.
  std::unordered_map<Ticket, std::shared_ptr<Call>> calls_ MUSTER_GUARDED_BY(mutex_);
  // Of these, agreements: they need no driver of their own, for whoever waits for something next
  // takes them along.
  size_t agreements_ MUSTER_GUARDED_BY(mutex_) = 0;
  bool agreement_awaited_ MUSTER_GUARDED_BY(mutex_) = false;  // Somebody may sleep for one.
  Ticket next_ticket_ MUSTER_GUARDED_BY(mutex_) = 1;
  std::deque<Job> jobs_ MUSTER_GUARDED_BY(mutex_);  // In the log, not yet begun.
  bool running_ MUSTER_GUARDED_BY(mutex_) = false;  // The driver is in the backend.
  uint64_t next_number_ MUSTER_GUARDED_BY(mutex_) = 1;
  std::map<int32_t, std::shared_ptr<const Group>> groups_ MUSTER_GUARDED_BY(mutex_);
  // Complete; their callbacks belong on the executor's thread, which drives or is on its way.
  std::vector<std::shared_ptr<Call>> callbacks_due_ MUSTER_GUARDED_BY(mutex_);
  // An error has ended the backend: no job is begun any more. Peers would take it for a sign that
  // what failed here has been done.
  bool backend_failed_ MUSTER_GUARDED_BY(mutex_) = false;
  // What jobs meet after that, if it is known before the launcher's verdict.
  std::exception_ptr backend_error_ MUSTER_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Call>> failed_ MUSTER_GUARDED_BY(mutex_);  // Until the verdict.
  uint64_t joined_agreements_ MUSTER_GUARDED_BY(mutex_) = 0;

  std::set<uint32_t> reported_ MUSTER_GUARDED_BY(mutex_);  // Suspects that the launcher knows of.
  std::set<uint32_t> finished_ MUSTER_GUARDED_BY(mutex_);  // Shut down after Done.
  std::set<uint32_t> departed_ MUSTER_GUARDED_BY(mutex_);  // Said Bye without Done.
  std::set<uint32_t> closed_ MUSTER_GUARDED_BY(mutex_);    // Their sockets are.
  bool log_broken_ MUSTER_GUARDED_BY(mutex_) = false;      // Rank 0 broke the rules.
  std::exception_ptr end_ MUSTER_GUARDED_BY(mutex_);       // Set by End.
  std::function<void()> on_drained_ MUSTER_GUARDED_BY(mutex_);
  bool leaving_ MUSTER_GUARDED_BY(mutex_) = false;
  bool stop_coordinating_ MUSTER_GUARDED_BY(mutex_) = false;
  bool left_ MUSTER_GUARDED_BY(mutex_) = false;
};

}  // namespace muster::worker
