// The sequencer's decisions: what becomes of an operation that all who have to have submitted.

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "worker/core/call_check.h"
#include "worker/core/dtype.h"
#include "worker/core/sequencer.h"
#include "worker/core/sequencer_state.h"

namespace muster::worker {
namespace {

bool IsData(OpKind kind) {
  return kind != OpKind::kBarrier && kind != OpKind::kAgreement && kind != OpKind::kAddSet &&
         kind != OpKind::kRemoveSet;
}

/// "no data (on rank 1); no memory (on ranks 2 and 3)"
std::string Text(const std::map<std::string, std::vector<uint32_t>>& objections) {
  std::string text;
  for (const auto& [objection, ranks] : objections) {
    text += (text.empty() ? "" : "; ") + objection + " (on " + RankList(ranks) + ")";
  }
  return text;
}

/// Whether everything that moves fits into memory as far as numbers tell.
bool HasPossibleResult(const Signature& signature, const std::vector<int64_t>& dims) {
  if (signature.kind == OpKind::kAllgather) {
    return TotalRows(signature, dims).has_value();
  }
  return signature.kind != OpKind::kAlltoall || ReceivedRows(signature, dims).has_value();
}

/// Of one rank's tensor; where the ranks differ, of an average one.
size_t BytesOf(const Signature& signature, const std::vector<int64_t>& dims, size_t members) {
  Shape shape = signature.shape;
  if (!dims.empty()) {
    int64_t rows = 0;
    for (const int64_t count : dims) {
      rows += count / static_cast<int64_t>(members);
    }
    shape.front() = rows;
  }
  return static_cast<size_t>(ElementCount(shape, signature.dtype).value_or(0)) *
         ElementSize(signature.dtype);
}

}  // namespace

void Sequencer::Decide(Operation& operation) {
  std::string wrong;
  if (operation.spelled) {
    wrong = FindWrong(operation);
  }
  if (wrong.empty()) {
    // Before anything is learned: members that never called keep what they know.
    wrong = FindShortGroup(operation);
  }
  if (wrong.empty() && operation.spelled) {
    wrong = Learn(operation);
  }
  if (wrong.empty()) {
    wrong = FindUnservable(operation);
  }
  if (!operation.groups.empty()) {
    DecideGroup(operation, wrong);
  } else if (!wrong.empty()) {
    Reject(operation, std::move(wrong));
  } else {
    Accept(operation);
  }
}

/// Members that will never submit it, since their group is smaller.
std::vector<uint32_t> Sequencer::RanksWithout(const Operation& operation) const {
  std::vector<uint32_t> ranks;
  if (operation.count == operation.size()) {
    return ranks;
  }
  for (size_t index = 0; index < operation.size(); ++index) {
    const auto rank = static_cast<uint32_t>(operation.set->ranks[index]);
    if (operation.presence[index] == Operation::kAbsent && joined_flags_[rank] == 0) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

std::string Sequencer::FindShortGroup(const Operation& operation) const {
  const std::vector<uint32_t> ranks = RanksWithout(operation);
  return ranks.empty()
             ? ""
             : Clip("group " + Quoted(operation.groups.front()->name->second) + " of " +
                    Quoted(operation.name->second) + " has fewer members on " + RankList(ranks));
}

/// What is wrong with the calls themselves. Not called if all came by id: then they are the last
/// ones again.
std::string Sequencer::FindWrong(const Operation& operation) const {
  const Operation::Spelled& spelled = *operation.spelled;
  if (!spelled.objections.empty()) {
    return Clip("the call of " + Quoted(operation.name->second) +
                " is wrong: " + Text(spelled.objections));
  }
  std::vector<CallGroup> groups;
  const std::vector<uint32_t>* alike = nullptr;  // Ranks that spelled out what the id stands for.
  for (const Operation::Variant& variant : spelled.variants) {
    if (operation.call && variant.signature == operation.call->signature) {
      alike = &variant.ranks;
    } else {
      groups.push_back({&variant.signature, &variant.ranks});
    }
  }
  std::vector<uint32_t> last = alike == nullptr ? std::vector<uint32_t>() : *alike;
  for (size_t index = 0; index < operation.size(); ++index) {
    if (operation.presence[index] == Operation::kById) {
      last.push_back(static_cast<uint32_t>(operation.set->ranks[index]));
    }
  }
  if (!last.empty()) {
    groups.push_back({&operation.call->signature, &last});
  }
  return FindMismatch(operation.name->second, groups, sets_);
}

/// Why the operation cannot be done now, though the calls agree.
std::string Sequencer::FindUnservable(const Operation& operation) const {
  const Signature& signature = operation.call->signature;
  const std::string what =
      std::string(Name(signature.kind)) + " of " + Quoted(operation.name->second);
  if (signature.kind == OpKind::kRemoveSet) {
    for (const Operation* other : pending_) {
      if (other->name->first == signature.root) {
        return what + ": process set " + std::to_string(signature.root) +
               " has operations under way, " + Quoted(other->name->second) + " for one";
      }
    }
  }
  if (operation.count == operation.size()) {
    return "";
  }
  std::vector<uint32_t> joined;
  for (size_t index = 0; index < operation.size(); ++index) {
    if (operation.presence[index] == Operation::kAbsent) {
      joined.push_back(static_cast<uint32_t>(operation.set->ranks[index]));
    }
  }
  const bool may = (signature.kind == OpKind::kAllreduce && signature.op != Op::kAdasum) ||
                   signature.kind == OpKind::kBarrier || signature.kind == OpKind::kAgreement;
  return may ? ""
             : Clip(what + (signature.op == Op::kAdasum ? " with adasum" : "") +
                    " is not supported while " + RankList(joined) +
                    (joined.size() == 1 ? " has" : " have") + " joined");
}

/// Takes the calls, which agree, for what the operation is; or tells why they cannot be.
std::string Sequencer::Learn(Operation& operation) {
  Operation::Spelled& spelled = *operation.spelled;
  Operation::Call call;
  call.signature = std::move(spelled.variants.front().signature);
  const OpKind kind = call.signature.kind;
  if (kind == OpKind::kAllgather || kind == OpKind::kAlltoall) {
    const size_t width = kind == OpKind::kAllgather ? 1 : operation.size();
    call.dims.resize(width * operation.size());
    for (size_t index = 0; index < operation.size(); ++index) {
      const auto to = call.dims.begin() + static_cast<std::ptrdiff_t>(index * width);
      if (operation.presence[index] == Operation::kById) {
        const auto from = operation.call->dims.begin() + static_cast<std::ptrdiff_t>(index * width);
        std::copy_n(from, width, to);
      } else if (!spelled.dims[index].empty()) {  // Empty: it has joined.
        std::copy_n(spelled.dims[index].begin(), width, to);
      }
    }
  }
  if (!HasPossibleResult(call.signature, call.dims)) {
    return Clip(std::string(Name(kind)) + " of " + Quoted(operation.name->second) +
                ": the tensors of all ranks together are too large");
  }
  call.fusion_class = ClassOf(call.signature);
  call.bytes = BytesOf(call.signature, call.dims, operation.size());
  call.small_bytes = kind == OpKind::kAllreduce ? call.bytes : 0;
  if (!call.signature.group.name.empty()) {
    call.group = operation.groups.front();
    ++call.group->known;
  }
  DropCall(operation);
  operation.call = std::move(call);
  return "";
}

void Sequencer::DropCall(Operation& operation) {
  if (operation.call && operation.call->group != nullptr) {
    --operation.call->group->known;
    EraseIfUnused(*operation.call->group);
  }
  operation.call.reset();
}

// ---------------------------------------------------------------- entries

OperationKey Sequencer::KeyFor(Operation& operation) {
  const auto& [set, name] = *operation.name;
  const OpKind kind = operation.call->signature.kind;
  const bool may = IsData(kind) || kind == OpKind::kBarrier;
  if (!may) {
    // A vote does not fit into an id, and what changes the sets is looked at each time.
    TakeBackId(operation);
  }
  if (operation.id != 0) {
    return {operation.id, std::exchange(operation.respell, false) ? name : "", set};
  }
  const uint32_t limit = std::min(options_.id_limit, kIdMax);
  if (!may || !operation.spelled->reusable || by_id_.size() > limit) {
    return {0, name, set};
  }
  operation.id = static_cast<uint32_t>(by_id_.size());
  by_id_.push_back(&operation);
  return {operation.id, name, set};
}

void Sequencer::TakeBackId(Operation& operation) {
  if (operation.id != 0) {
    by_id_[operation.id] = nullptr;
    operation.id = 0;
  }
}

void Sequencer::Accept(Operation& operation) {
  const Signature& signature = operation.call->signature;
  switch (signature.kind) {
    case OpKind::kBarrier:
      tail_.Append(BarrierPassed{KeyFor(operation)});
      break;
    case OpKind::kAgreement:
      tail_.Append(Agreed{KeyFor(operation), operation.spelled && operation.spelled->vote});
      break;
    case OpKind::kAddSet: {
      const int32_t set = sets_.Add(signature.ranks);
      tail_.Append(SetAdded{KeyFor(operation), set, signature.ranks});
      break;
    }
    case OpKind::kRemoveSet:
      tail_.Append(SetRemoved{KeyFor(operation), signature.root});
      RemoveSet(signature.root);
      break;
    default:
      if (operation.small_count == operation.count && small_reduce_ &&
          signature.op != Op::kAdasum) {
        AppendSmall(operation);
      } else {
        tail_.Append(DataOf(operation));
      }
  }
  Release(operation);
}

DataOperation Sequencer::DataOf(Operation& operation) {
  const Operation::Call& call = *operation.call;
  Item item{KeyFor(operation), call.dims, {}};
  if (operation.count != operation.size()) {
    item.joined.push_back(call.signature);
  }
  return {std::move(item), call.fusion_class, call.bytes, operation.name->second.size()};
}

void Sequencer::AppendSmall(Operation& operation) {
  const Operation::Call& call = *operation.call;
  std::vector<const std::string*> inputs(operation.size());
  for (size_t index = 0; index < inputs.size(); ++index) {
    const bool is_here = operation.presence[index] != Operation::kAbsent;
    inputs[index] = is_here ? &operation.smalls[index] : nullptr;
  }
  std::string bytes =
      small_reduce_(call.signature, inputs, static_cast<uint32_t>(operation.size()));
  MUSTER_CHECK_EQ(bytes.size(), call.small_bytes);
  tail_.Append(SmallResult{KeyFor(operation), std::move(bytes)});
}

void Sequencer::Reject(Operation& operation, std::string message) {
  const auto& [set, name] = *operation.name;
  Rejected entry{{0, name, set}, Clip(std::move(message)), {}};
  if (RanksWithout(operation).empty()) {
    TakeBackId(operation);
  } else {
    // The others may be about to use the name, or the id, for a call of their own.
    operation.respell = true;
    for (size_t index = 0; index < operation.size(); ++index) {
      if (operation.presence[index] != Operation::kAbsent) {
        entry.only.push_back(static_cast<uint32_t>(operation.set->ranks[index]));
      }
    }
  }
  tail_.Append(std::move(entry));
  Release(operation);
}

/// Pending no more; and forgotten, if it has no id.
void Sequencer::Release(Operation& operation) {
  pending_[operation.place] = pending_.back();
  pending_[operation.place]->place = operation.place;
  pending_.pop_back();
  for (Group* group : operation.groups) {
    --group->pending;
    EraseIfUnused(*group);
  }
  if (operation.id == 0) {
    DropCall(operation);
    operations_.erase(operations_.find(KeyView(*operation.name)));
    return;
  }
  operation.place = Operation::kIdle;
  operation.count = 0;
  std::fill(operation.presence.begin(), operation.presence.end(), Operation::kAbsent);
  operation.spelled.reset();
  if (operation.small_count != 0) {
    operation.smalls.clear();
    operation.small_count = 0;
  }
  operation.groups.clear();
  operation.held = false;
  operation.warned = false;
}

void Sequencer::RemoveSet(int32_t set) {
  const auto begin = operations_.lower_bound(KeyView(set, ""));
  auto end = begin;
  for (; end != operations_.end() && end->first.first == set; ++end) {
    const uint32_t id = end->second->id;
    by_id_[id] = nullptr;
    removed_ids_.insert(std::lower_bound(removed_ids_.begin(), removed_ids_.end(), id), id);
  }
  operations_.erase(begin, end);
  std::erase_if(groups_, [&](const auto& entry) { return entry.first.first == set; });
  sets_.Remove(set);
}

}  // namespace muster::worker
