#include "worker/core/sequencer.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "worker/core/call_check.h"
#include "worker/core/dtype.h"
#include "worker/core/sequencer_state.h"

namespace muster::worker {
namespace {

std::string RankText(uint32_t rank) {
  return "rank " + std::to_string(rank);
}

/// What a request of this signature may bring as `small`; 0: nothing.
size_t SmallBytes(const Signature& signature) {
  const auto count = ElementCount(signature.shape, signature.dtype);
  return signature.kind == OpKind::kAllreduce && count
             ? static_cast<size_t>(*count) * ElementSize(signature.dtype)
             : 0;
}

/// What this rank alone has to be told, for what the signature does not say.
std::string FindOwnFault(const FullRequest& request, size_t members) {
  const Signature& signature = request.signature;
  if (!ElementCount(signature.shape, signature.dtype)) {
    return "the shape " + Clip(ToString(signature.shape), 64) + " is impossible";
  }
  if (signature.kind != OpKind::kAlltoall || signature.shape.empty()) {
    return "";
  }
  return FindSplitsFault(signature.shape.front(), request.splits, members);
}

/// The first dimension of an allgather or alltoall may differ, so it is kept apart.
std::vector<int64_t> TakeDims(FullRequest& request) {
  Signature& signature = request.signature;
  const bool free_first =
      signature.kind == OpKind::kAllgather || signature.kind == OpKind::kAlltoall;
  if (!free_first || signature.shape.empty()) {
    return {};
  }
  const int64_t first = std::exchange(signature.shape.front(), 0);
  return signature.kind == OpKind::kAllgather ? std::vector<int64_t>{first}
                                              : std::move(request.splits);
}

}  // namespace

Sequencer::Sequencer(ProcessSets sets, SequencerOptions options, SmallReduce small_reduce)
    : sets_(std::move(sets)),
      options_(options),
      small_reduce_(std::move(small_reduce)),
      tail_(options.fusion_bytes, options.entry_bytes),
      by_id_(1),
      finished_flags_(sets_.world_size()),
      joined_flags_(sets_.world_size()) {}

Sequencer::~Sequencer() = default;

// ---------------------------------------------------------------- requests

Status Sequencer::Submit(uint32_t rank, Request request, Instant now) {
  if (rank >= sets_.world_size()) {
    return Status::Invalid("a request of " + RankText(rank) + " in a world of " +
                           std::to_string(sets_.world_size()));
  }
  if (joined_flags_[rank] != 0) {
    return Status::Invalid(RankText(rank) + " asked for something while it has joined");
  }
  if (auto* known = std::get_if<KnownRequest>(&request)) {
    return SubmitKnown(rank, std::move(*known), now);
  }
  return SubmitFull(rank, std::move(std::get<FullRequest>(request)), now);
}

Status Sequencer::SubmitKnown(uint32_t rank, KnownRequest request, Instant now) {
  if (request.id == 0 || request.id >= by_id_.size()) {
    return Status::Invalid(RankText(rank) + " used an id that was never given");
  }
  if (by_id_[request.id] == nullptr) {
    // Of a set that was removed while the request was under way, or of a rejected call, which no
    // honest rank repeats.
    return std::binary_search(removed_ids_.begin(), removed_ids_.end(), request.id)
               ? Status::Ok()
               : Status::Invalid(RankText(rank) + " used an id that was taken back");
  }
  if (HasFinished(rank)) {
    return Status::Ok();  // As in SubmitFull.
  }
  Operation& operation = *by_id_[request.id];
  const int index = operation.set->IndexOf(rank);
  if (index < 0) {
    return Status::Invalid(sets_.FindUseFault(operation.set->id, rank));
  }
  const Operation::Call& call = *operation.call;
  if (!request.small.empty() && request.small.size() != call.small_bytes) {
    return Status::Invalid(RankText(rank) + " sent " + std::to_string(request.small.size()) +
                           " bytes for " + Quoted(operation.name->second));
  }
  Status status = Begin(operation, rank, index, now);
  if (!status.ok()) {
    return status;
  }
  operation.presence[static_cast<size_t>(index)] = Operation::kById;
  AddSmall(operation, index, std::move(request.small));
  bool is_uneven = false;
  if (call.group != nullptr) {
    EnterGroup(operation, *call.group, call.signature.group, static_cast<size_t>(index));
    is_uneven = call.group->uneven;
  }
  Look(operation);
  if (is_uneven) {
    LookAtAll();
  }
  return status;
}

Status Sequencer::SubmitFull(uint32_t rank, FullRequest request, Instant now) {
  if (HasFinished(rank)) {
    // It said so before it asked, and its own MemberFinished fails this at its end. Counted, the
    // request could wait here for ever and make ranks look stalled that owe nobody anything.
    return Status::Ok();
  }
  const Signature& signature = request.signature;
  if ((signature.kind == OpKind::kJoin) != (request.name == kJoinName)) {
    return Status::Invalid(RankText(rank) + " called " + Quoted(request.name) + " a " +
                           Name(signature.kind));
  }
  if (signature.kind == OpKind::kJoin) {
    return SubmitJoin(rank, request);
  }
  const int32_t set = signature.set;
  const std::string fault = sets_.FindUseFault(set, rank);
  if (!fault.empty()) {
    // It may have asked before it heard that the set is removed; its follower then fails the call.
    const bool was_removed = set > 0 && set < sets_.next_id() && sets_.Find(set) == nullptr;
    return was_removed ? Status::Ok() : Status::Invalid(RankText(rank) + ": " + fault);
  }
  if (!request.small.empty() && request.small.size() != SmallBytes(signature)) {
    return Status::Invalid(RankText(rank) + " sent " + std::to_string(request.small.size()) +
                           " bytes for " + Quoted(request.name));
  }
  Operation& operation = Find(set, request.name);
  const int index = operation.set->IndexOf(rank);
  Status status = Begin(operation, rank, index, now);
  if (!status.ok()) {
    return status;
  }
  operation.presence[static_cast<size_t>(index)] = Operation::kInFull;
  AddSmall(operation, index, std::move(request.small));
  const GroupKey group = signature.group;
  AddFull(operation, rank, static_cast<size_t>(index), std::move(request));
  bool is_uneven = false;
  if (!group.name.empty()) {
    Group& entered = FindGroup(*operation.set, group.name);
    EnterGroup(operation, entered, group, static_cast<size_t>(index));
    is_uneven = entered.uneven;
  }
  Look(operation);
  if (is_uneven) {
    LookAtAll();  // What a rank with fewer members will never submit is complete without it.
  }
  return status;
}

Sequencer::Operation& Sequencer::Find(int32_t set, std::string_view name) {
  auto it = operations_.find(KeyView(set, name));
  if (it == operations_.end()) {
    it = operations_.emplace(Key(set, name), std::make_unique<Operation>()).first;
    Operation& operation = *it->second;
    operation.name = &it->first;
    operation.set = sets_.Find(set);
    operation.presence.resize(operation.set->size());
  }
  return *it->second;
}

Status Sequencer::Begin(Operation& operation, uint32_t rank, int index, Instant now) {
  if (operation.presence[static_cast<size_t>(index)] != Operation::kAbsent) {
    return Status::Invalid(RankText(rank) + " submitted " + Quoted(operation.name->second) +
                           " twice");
  }
  if (operation.place == Operation::kIdle) {
    operation.place = pending_.size();
    pending_.push_back(&operation);
  }
  if (!IsAwaited(operation)) {
    operation.since = now;
  }
  ++operation.count;
  return Status::Ok();
}

void Sequencer::AddSmall(Operation& operation, int index, std::string bytes) {
  if (bytes.empty()) {
    return;
  }
  operation.smalls.resize(operation.size());
  operation.smalls[static_cast<size_t>(index)] = std::move(bytes);
  ++operation.small_count;
}

void Sequencer::AddFull(Operation& operation, uint32_t rank, size_t index, FullRequest request) {
  if (!operation.spelled) {
    operation.spelled = std::make_unique<Operation::Spelled>();
    operation.spelled->dims.resize(operation.size());
  }
  Operation::Spelled& spelled = *operation.spelled;
  spelled.reusable = spelled.reusable || request.reusable;
  spelled.vote = spelled.vote || request.vote;
  std::string objection = request.objection.empty() ? FindOwnFault(request, operation.size())
                                                    : Clip(std::move(request.objection));
  if (!objection.empty()) {
    spelled.objections[std::move(objection)].push_back(rank);
  }
  spelled.dims[index] = TakeDims(request);
  const auto same = std::find_if(
      spelled.variants.begin(), spelled.variants.end(), [&](const Operation::Variant& variant) {
        return variant.signature == request.signature;
      });
  if (same != spelled.variants.end()) {
    same->ranks.push_back(rank);
  } else {
    spelled.variants.push_back({std::move(request.signature), {rank}});
  }
}

// ---------------------------------------------------------------- who is waited for

void Sequencer::Look(Operation& operation) {
  if (operation.held) {
    return;
  }
  if (NeedsFinished(operation)) {
    Drop(operation);
  } else if (IsComplete(operation)) {
    Decide(operation);
  }
}

// Of a group of which a rank has fewer members than others it will never submit the last ones.
bool Sequencer::IsAwaitedFrom(const Operation& operation, size_t index) const {
  if (operation.presence[index] != Operation::kAbsent ||
      joined_flags_[static_cast<size_t>(operation.set->ranks[index])] != 0) {
    return false;
  }
  if (operation.groups.empty()) {
    return true;
  }
  const uint32_t size = operation.groups.front()->sizes[index];
  return size == 0 || operation.group_index < size;
}

bool Sequencer::IsComplete(const Operation& operation) const {
  if (operation.count == operation.size()) {
    return true;
  }
  const bool all_are_asked = joined_.empty() && operation.groups.empty();
  if (all_are_asked || operation.count == 0) {
    return false;
  }
  for (size_t index = 0; index < operation.size(); ++index) {
    if (IsAwaitedFrom(operation, index)) {
      return false;
    }
  }
  return true;
}

// A rank that has finished moves no data any more, even for what it had submitted; an agreement or
// a barrier only needed its word.
bool Sequencer::NeedsFinished(const Operation& operation) const {
  if (finished_.empty()) {
    return false;
  }
  const auto only_word = [](const Signature& signature) {
    return signature.kind == OpKind::kBarrier || signature.kind == OpKind::kAgreement;
  };
  bool moves_data = false;
  bool by_id = false;
  for (const uint8_t presence : operation.presence) {
    by_id = by_id || presence == Operation::kById;
  }
  if (by_id) {
    moves_data = !only_word(operation.call->signature);
  }
  if (operation.spelled) {
    for (const Operation::Variant& variant : operation.spelled->variants) {
      moves_data = moves_data || !only_word(variant.signature);
    }
  }
  return std::any_of(finished_.begin(), finished_.end(), [&](uint32_t rank) {
    const int index = operation.set->IndexOf(rank);
    return index >= 0 &&
           (moves_data || operation.presence[static_cast<size_t>(index)] == Operation::kAbsent);
  });
}

// What only members wait for that have shut down keeps nobody waiting.
bool Sequencer::IsAwaited(const Operation& operation) const {
  const auto gone = std::count_if(finished_.begin(), finished_.end(), [&](uint32_t rank) {
    const int index = operation.set->IndexOf(rank);
    return index >= 0 && operation.presence[static_cast<size_t>(index)] != Operation::kAbsent;
  });
  return operation.count > static_cast<uint32_t>(gone);
}

bool Sequencer::AllOthersFinished(uint32_t rank) const {
  return finished_.size() + (HasFinished(rank) ? 0 : 1) == sets_.world_size();
}

}  // namespace muster::worker
