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

enum class OpKind : uint8_t { kAllreduce, kAllgather, kBroadcast, kBarrier, kAgreement };

/// Everything about a call that has to be the same on all ranks, except an allgather's first
/// dimension.
struct Signature {
  OpKind kind = OpKind::kBarrier;
  DType dtype = DType::kU8;
  Shape shape;
  int32_t device_kind = 0;
  Op op = Op::kSum;
  int32_t root = 0;
  double prescale = 1;
  double postscale = 1;
  int32_t set = 0;
  bool operator==(const Signature&) const = default;
};

// ---------------------------------------------------------------- member -> coordinator

/// The call in full: the first time, and whenever its signature has changed.
struct FullRequest {
  std::string name;
  Signature signature;
  bool reusable = false;  // The name will come again: worth an id.
  bool vote = false;      // Agreement only.
  std::string objection;  // Not empty: the rank itself found its call wrong, and says why.
  bool operator==(const FullRequest&) const = default;
};

/// The same call as the last one that the log completed under this id.
struct KnownRequest {
  uint32_t id = 0;
  bool operator==(const KnownRequest&) const = default;
};

using Request = std::variant<FullRequest, KnownRequest>;

// ---------------------------------------------------------------- coordinator -> all members

/// Names the operation: `name` where the members may not know the id yet; id 0: it has none.
struct OperationKey {
  uint32_t id = 0;
  std::string name;
  bool operator==(const OperationKey&) const = default;
};

/// Move the data now. `first_dims`: an allgather's first dimension of each rank.
struct Execute {
  OperationKey key;
  std::vector<int64_t> first_dims;
  bool operator==(const Execute&) const = default;
};
/// An agreement is complete: the OR of all votes.
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
/// The call differs between the ranks, or is wrong: InvalidCollective everywhere.
struct Rejected {
  OperationKey key;
  std::string message;
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

using LogEntry = std::variant<Execute, Agreed, BarrierPassed, Rejected, Unserved, MemberFinished>;

}  // namespace muster::worker
