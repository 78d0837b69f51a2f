#pragma once

// Runtime: what the public API (muster.h, elastic.h) stands on. One implementation runs the engine
// thread and talks to the agent; tests swap in a fake. The public functions contain no protocol,
// this interface contains no user-visible policy.
//
// Threads: Submit from any thread; the rest from the user's thread (the one in init(),
// elastic::run or shutdown()).

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/trace.h"
#include "muster/muster.h"
#include "worker/core/log_types.h"

namespace muster::worker {

/// One collective as the user's thread submits it.
struct Submission {
  OpKind kind = OpKind::kBarrier;
  std::string name;  // Empty: the runtime names it after the count of calls of this kind.
  Tensor in;
  Tensor out;                   // Allreduce and broadcast (in place: same data as `in`).
  Allocate allocate;            // Allgather, alltoall, reducescatter.
  int root = 0;                 // Broadcast: of the world. RemoveSet: the set.
  std::vector<int64_t> splits;  // Alltoall. Empty: equal parts.
  std::vector<int64_t>* received_splits = nullptr;  // Alltoall; may be null.
  std::vector<int32_t> ranks;                       // AddSet.
  GroupKey group;
  Op op = Op::kSum;
  double prescale = 1;
  double postscale = 1;
  ProcessSet set;
  bool vote = false;      // Agreement: the result is the OR over all ranks.
  bool blocking = false;  // The caller is going to wait for it at once.
};

/// The place that the user's thread has adopted. Changes only in Init, AwaitWorld and Shutdown.
struct Place {
  Generation generation;  // 0: a newcomer, before its first world; all else is provisional.
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;
  int cross_size = 1;
  int slot = 0;
  std::string host;
};

/// Why AwaitWorld returned.
enum class Awaited : uint8_t {
  kWorld,     // A newer world has formed and is adopted.
  kReleased,  // Drained, or too late: the process has to exit now, with 0.
};

class Runtime {
 public:
  virtual ~Runtime() = default;

  /// `process_sets`: ids 1, 2, ..., of the first world.
  virtual void Init(const std::vector<std::vector<int>>& process_sets) = 0;
  virtual void Shutdown() = 0;
  virtual const Place& place() const = 0;
  virtual const Trace& trace() const = 0;

  virtual Handle Submit(Submission submission) = 0;
  /// Several under one handle, which is complete when all are.
  virtual Handle SubmitGroup(std::vector<Submission> members) = 0;
  /// What a completed agreement, join or AddSet gives as a number; throws what it met.
  virtual int64_t Value(Handle& handle) = 0;
  /// Ranks in the present world; throws InvalidCollective if the set is no more, or broken.
  virtual std::vector<int> SetRanks(ProcessSet set) const = 0;
  virtual std::vector<ProcessSet> Sets() const = 0;
  /// Agreements of the present generation that passed while this rank was joined: it did not post
  /// them, and they count.
  virtual uint64_t JoinedAgreements() const = 0;

  // For elastic::run.
  /// True if this worker was told that the world will change, or that it is to drain.
  virtual bool PendingChange() const = 0;
  /// elastic::run was entered. The first time a newcomer calls it, it is reported warm.
  virtual void EnterElastic() = 0;
  /// What restore() would go back to; told to the driver with Formed and Left. From the user's
  /// thread, after each commit and sync.
  virtual void SetHeld(std::optional<CommitId> held) = 0;
  /// The user's thread leaves its generation at the agreed commit.
  virtual void Leave() = 0;
  /// Waits until a world newer than place() has formed and adopts it, or until released. A
  /// newcomer calls it before its first sync. Throws Error only if the runtime is shut down.
  virtual Awaited AwaitWorld() = 0;
  /// sync() is complete; `commit` is what all members now hold.
  virtual void ReportSynced(CommitId commit) = 0;
  /// The elastic function returned.
  virtual void ReportDone() = 0;
};

/// The process's runtime; throws Error before init() and in a forked child.
Runtime& GetRuntime();

/// For tests: while not null, what GetRuntime() gives to the calling thread.
void SetThreadRuntime(Runtime* runtime);

}  // namespace muster::worker
