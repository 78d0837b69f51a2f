#pragma once

// Sequencer: the coordinator's side of the log of one generation. It collects what the ranks ask
// for, in any order, and decides an operation as soon as all members of its set have submitted it;
// all ranks follow the entries in the order in which they are taken. It moves no data and sends
// nothing: the caller takes the entries and delivers the same ones to every rank. When it takes
// them is its own choice: what waits longer is fused better (backlog()).
//
// Pure: time is an argument, arithmetic is injected. Threads: one at a time.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/status.h"
#include "worker/core/fusion.h"
#include "worker/core/log_types.h"
#include "worker/core/process_sets.h"

namespace muster::worker {

struct SequencerOptions {
  /// Of one rank's data in one fused operation; 0: nothing is fused but groups.
  size_t fusion_bytes = 64u << 20;
  /// Ids are never taken back, so their number is bounded: later names go without. At most kIdMax.
  uint32_t id_limit = 65536;
  /// An Execute of several operations is no longer than this in its encoding.
  size_t entry_bytes = 48u << 10;
};

/// The result of a small allreduce: of the bytes of each member of the set, in rank order; null: it
/// has joined, and zeros stand in. `divisor`: the size of the set.
using SmallReduce = std::function<std::string(
    const Signature& signature, const std::vector<const std::string*>& inputs, uint32_t divisor)>;

/// An operation that some ranks, not finished, wait for and others have not submitted.
struct Stall {
  int32_t set = 0;
  std::string name;
  std::string group;              // Whose member it is; mostly empty.
  std::vector<uint32_t> missing;  // Of the world, growing.
  Duration waited{};
};

/// "'w' of process set 2 has been waiting for 60 s: ranks 3-5 did not submit it"
std::string ToString(const Stall& stall);

struct StallReport {
  std::vector<Stall> warnings;  // Newly past the warning time; each operation once.
  std::vector<Stall> lost;      // Past the shutdown time.
};

class Sequencer {
 public:
  Sequencer(ProcessSets sets, SequencerOptions options, SmallReduce small_reduce);
  ~Sequencer();

  /// kInvalid: no honest rank sends this (an unknown id, the same operation twice in flight, a set
  /// that it cannot use). What a rank asks for after its Finish, or on a set that was removed
  /// meanwhile, counts for nothing.
  Status Submit(uint32_t rank, Request request, Instant now);

  /// The rank has shut down after Done. What still needs it fails; calling it again does nothing.
  void Finish(uint32_t rank);

  /// Everything decided since the last call, fused, in order.
  std::vector<LogEntry> TakeEntries() { return tail_.Take(); }
  const Backlog& backlog() const { return tail_.backlog(); }
  const LogCounters& counters() const { return tail_.counters(); }

  /// Zero means never, for both times.
  StallReport CheckStalls(Instant now, Duration warn, Duration shutdown);

  bool AllOthersFinished(uint32_t rank) const;
  /// Submitted by some, or complete and waiting for others of their group.
  size_t pending_count() const { return pending_.size(); }
  /// Groups of which something is known: bounded by the ids, and by what is pending.
  size_t kept_groups() const { return groups_.size(); }
  const ProcessSets& sets() const { return sets_; }

 private:
  struct Operation;
  struct Group;
  using Key = std::pair<int32_t, std::string>;  // The set, and the name that is unique there.
  using KeyView = std::pair<int32_t, std::string_view>;
  struct KeyLess {
    using is_transparent = void;
    bool operator()(const KeyView& a, const KeyView& b) const { return a < b; }
  };

  // Requests.
  Status SubmitKnown(uint32_t rank, KnownRequest request, Instant now);
  Status SubmitFull(uint32_t rank, FullRequest request, Instant now);
  Operation& Find(int32_t set, std::string_view name);
  Status Begin(Operation& operation, uint32_t rank, int index, Instant now);
  static void AddSmall(Operation& operation, int index, std::string bytes);
  static void AddFull(Operation& operation, uint32_t rank, size_t index, FullRequest request);

  // Who is waited for.
  void Look(Operation& operation);
  bool IsAwaitedFrom(const Operation& operation, size_t index) const;
  bool IsComplete(const Operation& operation) const;
  bool NeedsFinished(const Operation& operation) const;
  bool IsAwaited(const Operation& operation) const;

  // Decisions. After each of them the operation may be gone.
  void Decide(Operation& operation);
  std::string FindWrong(const Operation& operation) const;
  std::vector<uint32_t> RanksWithout(const Operation& operation) const;
  std::string FindShortGroup(const Operation& operation) const;
  std::string FindUnservable(const Operation& operation) const;
  std::string Learn(Operation& operation);
  void DropCall(Operation& operation);
  OperationKey KeyFor(Operation& operation);
  void TakeBackId(Operation& operation);
  void Accept(Operation& operation);
  DataOperation DataOf(Operation& operation);
  void AppendSmall(Operation& operation);
  void Reject(Operation& operation, std::string message);
  void Release(Operation& operation);
  void RemoveSet(int32_t set);

  // Groups.
  Group& FindGroup(const ProcessSets::Set& set, std::string_view name);
  static void EnterGroup(Operation& operation, Group& group, const GroupKey& key, size_t index);
  void DecideGroup(Operation& operation, std::string wrong);
  static std::string Hold(Operation& operation, Group& group);
  void AcceptGroup(Group& group);
  void EraseIfUnused(Group& group);

  // Ranks that have joined, that have finished, that keep others waiting.
  Status SubmitJoin(uint32_t rank, const FullRequest& request);
  void ClearJoined();
  void LookAtAll();
  std::vector<Operation*> PendingInOrder() const;
  void Drop(Operation& operation);
  bool HasFinished(uint32_t rank) const { return finished_flags_[rank] != 0; }
  std::string FinishedText() const;
  std::vector<uint32_t> MissingRanks(const Operation& operation) const;
  std::vector<Stall> UnheardMembers(const Group& group, Duration waited) const;

  ProcessSets sets_;
  const SequencerOptions options_;
  const SmallReduce small_reduce_;
  LogTail tail_;

  std::map<Key, std::unique_ptr<Operation>, KeyLess> operations_;  // Pending, or with an id.
  std::vector<Operation*> pending_;                                // In no order.
  std::vector<Operation*> by_id_;      // Null: of a name that is forgotten.
  std::vector<uint32_t> removed_ids_;  // Growing; of sets that have been removed.
  std::map<Key, std::unique_ptr<Group>, KeyLess> groups_;

  std::vector<uint32_t> finished_;  // In the order of their going.
  std::vector<uint8_t> finished_flags_;
  std::vector<uint32_t> joined_;  // In the order of their joining.
  std::vector<uint8_t> joined_flags_;
};

}  // namespace muster::worker
