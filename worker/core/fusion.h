#pragma once

// LogTail: the end of the log that nobody has seen yet. Data operations wait here for company:
// taking the tail fuses allreduces that fit together. An operation moves only past other data
// operations; all other entries keep their place.
//
// Pure. Threads: one at a time.

#include <cstdint>
#include <vector>

#include "worker/core/log_types.h"

namespace muster::worker {

/// What waits to be published.
struct Backlog {
  size_t data_bytes = 0;  // Of one rank's tensors.
  size_t operations = 0;  // Of those that move data.
  bool urgent = false;    // Something other than moving data is decided, too.
  bool empty = true;
};

/// Since the beginning.
struct LogCounters {
  uint64_t executes = 0;
  uint64_t operations = 0;  // In all of them.
  uint64_t fused = 0;       // Of these, in an Execute with others.
};

/// What allreduces must have in common to be done in one.
struct FusionClass {
  OpKind kind = OpKind::kAllreduce;
  DType dtype = DType::kU8;
  Op op = Op::kSum;
  int32_t set = 0;
  int32_t device_kind = 0;
  double prescale = 1;
  double postscale = 1;
  auto operator<=>(const FusionClass&) const = default;
};
FusionClass ClassOf(const Signature& signature);

/// An operation that all members wait for.
struct DataOperation {
  Item item;
  FusionClass fusion_class;
  size_t bytes = 0;       // Of one rank's tensor.
  size_t name_bytes = 0;  // Of its name, whether the item spells it out or not.
};

class LogTail {
 public:
  /// No Execute holds more than `fusion_bytes` of data, unless it is a single operation's or a
  /// group's. None takes more than `entry_bytes` when encoded, unless a single operation does.
  LogTail(size_t fusion_bytes, size_t entry_bytes);

  void Append(LogEntry entry);
  void Append(DataOperation operation);
  /// Its operations are done next to each other, in this order, and fused with no others.
  void AppendGroup(std::vector<DataOperation> operations);

  const Backlog& backlog() const { return backlog_; }
  const LogCounters& counters() const { return counters_; }
  std::vector<LogEntry> Take();

 private:
  struct Waiting {
    DataOperation operation;
    uint64_t group = 0;  // 0: none.
  };
  using Part = std::variant<Waiting, LogEntry>;

  void Add(DataOperation operation, uint64_t group);
  void TakeData(size_t begin, size_t end, std::vector<LogEntry>& out);

  const size_t fusion_bytes_;
  const size_t entry_bytes_;
  std::vector<Part> parts_;
  uint64_t next_group_ = 1;
  Backlog backlog_;
  LogCounters counters_;
};

}  // namespace muster::worker
