#pragma once

// The vocabulary of the log by which all members of a world agree on what to do and in which
// order: what a member asks for (Request) and what the coordinator decides (LogEntry). Values only;
// nothing here moves bytes or keeps state.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "muster/muster.h"

namespace muster::worker {

/// What moves the data of a world.
enum class BackendKind : uint8_t { kShm, kHierarchical, kGloo };

/// Ids of operations are small numbers: an array may be as long as the largest.
inline constexpr uint32_t kIdMax = 1u << 20;

/// The name of every join, and of nothing else.
inline constexpr const char* kJoinName = "join.noname";

enum class OpKind : uint8_t {
  kAllreduce,
  kAllgather,
  kBroadcast,
  kAlltoall,
  kReducescatter,
  kBarrier,
  kAgreement,
  kJoin,
  kAddSet,
  kRemoveSet,
};

/// Members of a group are executed together or not at all.
struct GroupKey {
  std::string name;    // Empty: in no group.
  uint32_t size = 0;   // Members of the group.
  uint32_t index = 0;  // This one.
  bool operator==(const GroupKey&) const = default;
};

/// Everything about a call that has to be the same on all ranks. Of an allgather and an alltoall
/// the first dimension may differ; the coordinator keeps it apart.
struct Signature {
  OpKind kind = OpKind::kBarrier;
  DType dtype = DType::kU8;
  Shape shape;
  int32_t device_kind = 0;
  Op op = Op::kSum;
  int32_t root = 0;  // Broadcast: rank of the world. RemoveSet: the set.
  double prescale = 1;
  double postscale = 1;
  int32_t set = 0;
  std::vector<int32_t> ranks;  // AddSet: of the world, growing.
  GroupKey group;
  bool operator==(const Signature&) const = default;
};

// ---------------------------------------------------------------- member -> coordinator

/// The call in full: the first time, and whenever its signature has changed.
struct FullRequest {
  std::string name;
  Signature signature;
  std::vector<int64_t> splits;  // Alltoall only: rows for each member of the set, in order.
  bool reusable = false;        // The name will come again: worth an id.
  bool vote = false;            // Agreement only.
  std::string objection;        // Not empty: the rank itself found its call wrong, and says why.
  /// The data itself, where it is small: an allreduce whose requests all bring it is computed by
  /// the coordinator.
  std::string small;
  bool operator==(const FullRequest&) const = default;
};

/// The same call as the last one that the log completed under this id.
struct KnownRequest {
  uint32_t id = 0;
  std::string small;  // As above.
  bool operator==(const KnownRequest&) const = default;
};

using Request = std::variant<FullRequest, KnownRequest>;

// ---------------------------------------------------------------- coordinator -> all members

/// Names the operation: `name` where the members may not know the id yet; id 0: it has none (any
/// more).
/// `set`: names are unique within a process set only.
struct OperationKey {
  uint32_t id = 0;
  std::string name;
  int32_t set = 0;
  bool operator==(const OperationKey&) const = default;
};

/// One operation of an Execute.
struct Item {
  OperationKey key;
  /// Allgather: the first dimension of each member of the set. Alltoall: their splits, one member
  /// after another.
  std::vector<int64_t> dims;
  /// For members that have joined and never submitted it; absent otherwise.
  std::vector<Signature> joined;
  bool operator==(const Item&) const = default;
};
/// Move the data now. Several items are allreduces of one type, reduction, factors and set, not
/// adasum: one fused operation.
struct Execute {
  int32_t set = 0;
  std::vector<Item> items;
  bool operator==(const Execute&) const = default;
};
/// The result of a small allreduce, computed from what came with the requests.
struct SmallResult {
  OperationKey key;
  std::string bytes;
  bool operator==(const SmallResult&) const = default;
};
/// An agreement is complete: the OR of all votes. Members that have joined hear of it too.
struct Agreed {
  OperationKey key;
  bool vote = false;
  bool operator==(const Agreed&) const = default;
};
/// Every rank has reached the barrier; this entry is the barrier.
struct BarrierPassed {
  OperationKey key;
  bool operator==(const BarrierPassed&) const = default;
};
/// All members of the set have joined; nobody is joined any more.
struct AllJoined {
  OperationKey key;
  uint32_t last_rank = 0;  // Of the world: who joined last.
  bool operator==(const AllJoined&) const = default;
};
/// From here on the set exists, on every rank of the world.
struct SetAdded {
  OperationKey key;
  int32_t set = 0;
  std::vector<int32_t> ranks;
  bool operator==(const SetAdded&) const = default;
};
struct SetRemoved {
  OperationKey key;
  int32_t set = 0;
  bool operator==(const SetRemoved&) const = default;
};
/// The call differs between the ranks, or is wrong: InvalidCollective everywhere.
struct Rejected {
  OperationKey key;
  std::string message;
  /// Of the world, growing: those whose calls are over, where others never made any (their groups
  /// are smaller). Empty: all members.
  std::vector<uint32_t> only;
  bool operator==(const Rejected&) const = default;
};
/// It needs a rank that has shut down: WorkersFinished wherever it is pending.
struct Unserved {
  OperationKey key;
  std::string message;
  bool operator==(const Unserved&) const = default;
};
/// This rank has shut down after Done: no later entry counts on it.
struct MemberFinished {
  uint32_t rank = 0;
  bool operator==(const MemberFinished&) const = default;
};

using LogEntry = std::variant<Execute,
                              SmallResult,
                              Agreed,
                              BarrierPassed,
                              AllJoined,
                              SetAdded,
                              SetRemoved,
                              Rejected,
                              Unserved,
                              MemberFinished>;

}  // namespace muster::worker
