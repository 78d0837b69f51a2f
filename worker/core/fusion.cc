#include "worker/core/fusion.h"

#include <map>
#include <utility>

#include "worker/core/dtype.h"

namespace muster::worker {
namespace {

/// Bounds for what the encoding (control_messages.cc) makes of an item. The name counts although it
/// is mostly left out, so that what is fused does not depend on who knows it already.
constexpr size_t kItemBytes = 32;
constexpr size_t kSignatureBytes = 96;

size_t EncodedBound(const DataOperation& operation) {
  size_t bytes = kItemBytes + operation.name_bytes + operation.item.dims.size() * sizeof(int64_t);
  for (const Signature& signature : operation.item.joined) {
    bytes +=
        kSignatureBytes + signature.shape.size() * sizeof(int64_t) + signature.group.name.size();
  }
  return bytes;
}

bool IsFusable(const FusionClass& what) {
  return what.kind == OpKind::kAllreduce && what.op != Op::kAdasum;
}

/// An Execute that still has room.
struct Open {
  size_t entry = 0;  // Its index.
  size_t data_bytes = 0;
  size_t entry_bytes = 0;
};

}  // namespace

FusionClass ClassOf(const Signature& signature) {
  return {signature.kind,
          signature.dtype,
          signature.op,
          signature.set,
          signature.device_kind,
          signature.prescale,
          signature.postscale};
}

LogTail::LogTail(size_t fusion_bytes, size_t entry_bytes)
    : fusion_bytes_(fusion_bytes), entry_bytes_(entry_bytes) {}

void LogTail::Append(LogEntry entry) {
  parts_.emplace_back(std::move(entry));
  backlog_.empty = false;
  backlog_.urgent = true;
}

void LogTail::Append(DataOperation operation) {
  Add(std::move(operation), 0);
}

void LogTail::AppendGroup(std::vector<DataOperation> operations) {
  const uint64_t group = next_group_++;
  for (DataOperation& operation : operations) {
    Add(std::move(operation), group);
  }
}

void LogTail::Add(DataOperation operation, uint64_t group) {
  backlog_.empty = false;
  backlog_.data_bytes += operation.bytes;
  ++backlog_.operations;
  parts_.emplace_back(Waiting{std::move(operation), group});
}

std::vector<LogEntry> LogTail::Take() {
  std::vector<LogEntry> out;
  size_t begin = 0;
  while (begin < parts_.size()) {
    size_t end = begin;
    while (end < parts_.size() && std::holds_alternative<Waiting>(parts_[end])) {
      ++end;
    }
    TakeData(begin, end, out);
    if (end < parts_.size()) {
      out.push_back(std::move(std::get<LogEntry>(parts_[end])));
    }
    begin = end + 1;
  }
  parts_.clear();
  backlog_ = {};
  return out;
}

// Each class has one Execute with room, the last one of it: what follows goes there or opens the
// next. So the order within a class stays, and the work does not grow with the square of the tail.
void LogTail::TakeData(size_t begin, size_t end, std::vector<LogEntry>& out) {
  std::map<std::pair<uint64_t, FusionClass>, Open> open;
  for (size_t i = begin; i < end; ++i) {
    Waiting& waiting = std::get<Waiting>(parts_[i]);
    DataOperation& operation = waiting.operation;
    const size_t bound = EncodedBound(operation);
    ++counters_.operations;
    const bool fusable = IsFusable(operation.fusion_class) &&
                         (waiting.group != 0 || operation.bytes <= fusion_bytes_) &&
                         (waiting.group != 0 || fusion_bytes_ != 0);
    if (!fusable) {
      out.emplace_back(Execute{operation.fusion_class.set, {}});
      std::get<Execute>(out.back()).items.push_back(std::move(operation.item));
      ++counters_.executes;
      continue;
    }
    auto [it, is_new] = open.try_emplace({waiting.group, operation.fusion_class});
    Open& room = it->second;
    const bool fits = !is_new && room.entry_bytes + bound <= entry_bytes_ &&
                      (waiting.group != 0 || room.data_bytes + operation.bytes <= fusion_bytes_);
    if (!fits) {
      room = {out.size(), 0, 0};
      out.emplace_back(Execute{operation.fusion_class.set, {}});
      ++counters_.executes;
    }
    std::vector<Item>& items = std::get<Execute>(out[room.entry]).items;
    items.push_back(std::move(operation.item));
    room.data_bytes += operation.bytes;
    room.entry_bytes += bound;
    counters_.fused += items.size() == 1 ? 0 : items.size() == 2 ? 2 : 1;
  }
}

}  // namespace muster::worker
