#pragma once

// FakeJob: a whole job in one process, for tests of what stands on worker/runtime.h. Each worker is
// a thread with a runtime of its own; collectives really meet, losses and changes of the world come
// at the places that a test names. It is driver, agent and engine at once and knows no network.
//
// Threads: a FakeRuntime belongs to its worker's thread; everything of FakeJob may be called from
// any thread. Waits end with the job's deadline, which fails the test instead of hanging it.

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/mutex.h"
#include "worker/operation.h"
#include "worker/runtime.h"

namespace muster::testing {

class FakeJob;

/// Thrown through the user's code when its worker dies. No std::exception, so nobody catches it.
struct FakeDeath {};

class FakeRuntime final : public worker::Runtime {
 public:
  FakeRuntime(FakeJob& job, int id, const std::string& trace_path);

  void Init(const std::vector<std::vector<int>>&) override {}
  void Shutdown() override { shut_down = true; }
  const worker::Place& place() const override { return place_; }
  const Trace& trace() const override { return trace_; }
  Handle Submit(worker::Submission submission) override;
  Handle SubmitGroup(std::vector<worker::Submission> members) override;
  int64_t Value(Handle& handle) override;
  std::vector<int> SetRanks(ProcessSet) const override { return {}; }
  std::vector<ProcessSet> Sets() const override { return {{0}}; }
  uint64_t JoinedAgreements() const override { return joined_agreements; }
  bool PendingChange() const override;
  void EnterElastic() override { ++entered; }
  void SetHeld(std::optional<CommitId> held) override { holds = held; }
  void Leave() override;
  worker::Awaited AwaitWorld() override;
  void ReportSynced(CommitId commit) override { synced.push_back(commit); }
  void ReportDone() override { ++done; }

  // What the code under test told the runtime.
  int entered = 0;
  int done = 0;
  bool shut_down = false;
  std::optional<CommitId> holds;
  std::vector<CommitId> synced;
  std::vector<std::string> submitted;
  uint64_t joined_agreements = 0;  // Names, in order.

  int id() const { return id_; }

 private:
  friend class FakeJob;
  FakeJob& job_;
  const int id_;
  worker::Place place_;
  Trace trace_;
};

class FakeJob {
 public:
  /// A job whose first world has `size` members: workers 0 to size - 1, by rank.
  explicit FakeJob(int size, std::string trace_path = "");
  ~FakeJob();

  /// A worker that waits to be taken into the next world. Returns its number.
  int AddNewcomer();
  FakeRuntime& worker(int id) { return *workers_.at(id); }

  using Body = std::function<void(FakeRuntime&)>;
  /// Runs the body in a thread of its own, as worker `id`.
  void Start(int id, Body body);
  /// Start for every worker, then Join.
  void RunAll(const Body& body);
  /// Waits for all threads; rethrows the first exception that left a body, a FakeDeath excepted.
  void Join();

  /// The worker dies when it submits the nth operation of this name: before the others can
  /// complete it, or right after its own part is done.
  enum class Moment : uint8_t { kBefore, kAfter };
  void LoseAt(int id, const std::string& operation, int nth = 1, Moment moment = Moment::kBefore);
  /// The worker dies here and now; called in its own thread. Throws FakeDeath.
  [[noreturn]] void Die(int id);
  /// The members are told that the world will change.
  void NotifyPending();
  /// Only this member is told; the others learn of it by agreement.
  void NotifyPending(int id);
  /// The member is to leave at the agreed commit, then it is released.
  void Drain(int id);
  /// Waits until a newcomer is in AwaitWorld.
  void WaitUntilWarm(int id);

  uint64_t generation() const;

 private:
  friend class FakeRuntime;

  struct Part {
    worker::Submission submission;
    std::shared_ptr<Operation> operation;
  };
  struct Meeting {
    std::map<int, Part> parts;  // By rank.
  };
  struct Worker {
    bool lost = false;
    bool left = false;
    bool draining = false;
    bool warm = false;
    bool told = false;  // Of a pending change.
  };
  struct Death {
    int id;
    std::string operation;
    int nth;
    Moment moment;
  };

  Handle Submit(FakeRuntime& runtime, worker::Submission submission);
  worker::Awaited AwaitWorld(FakeRuntime& runtime);
  void Leave(FakeRuntime& runtime);
  bool PendingChange(int id) const;

  std::optional<Moment> TakeDeath(int id, const std::string& operation) MUSTER_REQUIRES(mutex_);
  void Complete(Meeting meeting) MUSTER_REQUIRES(mutex_);
  void Lose(int id) MUSTER_REQUIRES(mutex_);
  void Revoke(const std::string& reason) MUSTER_REQUIRES(mutex_);
  void FormWorld() MUSTER_REQUIRES(mutex_);
  void Adopt(FakeRuntime& runtime) MUSTER_REQUIRES(mutex_);
  void WaitChange(std::chrono::steady_clock::time_point deadline) MUSTER_REQUIRES(mutex_);

  const std::string trace_path_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<std::unique_ptr<FakeRuntime>> workers_;
  std::vector<Worker> states_ MUSTER_GUARDED_BY(mutex_);
  std::vector<int> members_ MUSTER_GUARDED_BY(mutex_);  // Worker numbers by rank.
  uint64_t generation_ MUSTER_GUARDED_BY(mutex_) = 1;
  bool revoked_ MUSTER_GUARDED_BY(mutex_) = false;
  std::string reason_ MUSTER_GUARDED_BY(mutex_);
  std::map<std::string, Meeting> meetings_ MUSTER_GUARDED_BY(mutex_);
  std::vector<Death> deaths_ MUSTER_GUARDED_BY(mutex_);
  std::vector<std::jthread> threads_;
  std::exception_ptr failure_ MUSTER_GUARDED_BY(mutex_);
};

}  // namespace muster::testing
