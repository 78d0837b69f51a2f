#pragma once

// EngineRuntime: the Runtime over an Engine. It keeps what belongs to the user's threads: the
// adopted place, the names of calls, and what has been said to the launcher so far.
//
// Threads: see runtime.h.

#include <array>
#include <atomic>
#include <memory>
#include <string>

#include "worker/bulletin.h"
#include "worker/call.h"
#include "worker/core/dtype.h"
#include "worker/engine.h"
#include "worker/runtime.h"

namespace muster::worker {

struct RuntimeOptions {
  EngineOptions engine;
  std::string trace_path;
};

/// From the environment of this process; the worker's key is unset after reading. An error if it
/// speaks of an agent but is not complete.
Result<RuntimeOptions> OptionsFromEnvironment();

class EngineRuntime final : public Runtime, public OperationHelper {
 public:
  explicit EngineRuntime(RuntimeOptions options);
  ~EngineRuntime() override;

  void Init(const std::vector<std::vector<int>>& process_sets) override;
  void Shutdown() override { ShutdownWith(0); }
  /// For an exit with a code: another one than 0 is never Done.
  void ShutdownWith(int exit_code);
  const Place& place() const override { return place_; }
  const Trace& trace() const override { return trace_; }

  Handle Submit(Submission submission) override;
  Handle SubmitGroup(std::vector<Submission> members) override;
  int64_t Value(Handle& handle) override;
  std::vector<int> SetRanks(ProcessSet set) const override;
  std::vector<ProcessSet> Sets() const override;
  uint64_t JoinedAgreements() const override;

  bool PendingChange() const override;
  void EnterElastic() override;
  void SetHeld(std::optional<CommitId> held) override;
  void Leave() override;
  Awaited AwaitWorld() override;
  void ReportSynced(CommitId commit) override;
  void ReportDone() override;

 private:
  enum class Phase : uint8_t { kNew, kRunning, kEnded };

  void HelpComplete(const Operation& operation, uint64_t generation) override {
    engine_.HelpComplete(operation, Generation{generation});
  }
  void Adopt(const Place& place) MUSTER_REQUIRES(bulletin_.mutex);
  std::string UnnamedName(OpKind kind);
  Handle SubmitNamed(std::vector<Submission> submissions, bool reusable);
  /// Nothing if the call may go ahead; then its name is in flight.
  std::exception_ptr Refusal(const Submission& submission, Generation generation);
  void CheckFirstSets(const std::vector<std::vector<int>>& wanted) const;
  ProcessSets CurrentSets() const;
  std::optional<CommitId> held() const;

  mutable Bulletin bulletin_;
  CallBook book_;
  const Trace trace_;
  Engine engine_;

  // The user's thread's.
  Place place_;
  bool newcomer_ = false;
  bool warm_reported_ = false;
  bool elastic_ = false;  // elastic::run was entered.
  bool done_ = false;
  bool left_ = false;  // At the agreed commit; until the next world.

  std::atomic<Phase> phase_{Phase::kNew};
  // Calls without a name, by kind, in this generation.
  std::array<std::atomic<uint64_t>, kOpKindCount> unnamed_{};
};

}  // namespace muster::worker
