#include "worker/core/sequencer.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "worker/core/call_check.h"

namespace muster::worker {
namespace {

/// The first dimension of an allgather may differ, so it is kept apart from the signature.
int64_t TakeFirstDim(Signature& signature) {
  if (signature.kind != OpKind::kAllgather || signature.shape.empty()) {
    return 0;
  }
  return std::exchange(signature.shape.front(), 0);
}

bool MovesData(OpKind kind) {
  return kind != OpKind::kBarrier && kind != OpKind::kAgreement;
}

/// "no data (on rank 1); no memory (on ranks 2 and 3)"
std::string Text(const std::map<std::string, std::vector<uint32_t>>& objections) {
  std::string text;
  for (const auto& [objection, ranks] : objections) {
    std::vector<uint32_t> sorted = ranks;
    std::sort(sorted.begin(), sorted.end());
    text += (text.empty() ? "" : "; ") + objection + " (on " + RankList(sorted) + ")";
  }
  return text;
}

}  // namespace

Sequencer::Sequencer(uint32_t size) : size_(size) {
  MUSTER_CHECK(size > 0, "a world has members");
}

Status Sequencer::Submit(uint32_t rank, const Request& request, Instant now) {
  if (rank >= size_) {
    return Status::Invalid("a request of rank " + std::to_string(rank) + " in a world of " +
                           std::to_string(size_));
  }
  const std::optional<FullRequest> full = Resolve(rank, request);
  if (!full) {
    return Status::Invalid("rank " + std::to_string(rank) + " used an id that was never given");
  }
  if (HasFinished(rank)) {
    // It said so before it asked, and its own MemberFinished fails this at its end. Counted, the
    // request could wait here for ever and make ranks look stalled that owe nobody anything.
    return Status::Ok();
  }
  auto [it, is_new] = pending_.try_emplace(full->name);
  Pending& pending = it->second;
  if (is_new) {
    pending.submitted.resize(size_);
  }
  if (!IsAwaited(pending)) {
    pending.since = now;
  }
  if (pending.submitted[rank]) {
    return Status::Invalid("rank " + std::to_string(rank) + " submitted '" + full->name +
                           "' twice");
  }
  Add(pending, rank, *full);
  if (NeedsFinished(pending)) {
    Append(Unserved{{0, full->name}, FinishedText()});
    pending_.erase(it);
  } else if (pending.count == size_) {
    Decide(full->name, pending);
    pending_.erase(it);
  }
  return Status::Ok();
}

std::optional<FullRequest> Sequencer::Resolve(uint32_t rank, const Request& request) const {
  if (const auto* full = std::get_if<FullRequest>(&request)) {
    return *full;
  }
  const auto it = known_.find(std::get<KnownRequest>(request).id);
  if (it == known_.end()) {
    return std::nullopt;
  }
  FullRequest full{it->second.name, it->second.signature, true, false, ""};
  if (!it->second.first_dims.empty()) {
    full.signature.shape.front() = it->second.first_dims[rank];
  }
  return full;
}

void Sequencer::Add(Pending& pending, uint32_t rank, const FullRequest& request) {
  pending.submitted[rank] = true;
  ++pending.count;
  pending.reusable = pending.reusable || request.reusable;
  pending.vote = pending.vote || request.vote;
  if (!request.objection.empty()) {
    pending.objections[request.objection].push_back(rank);
  }
  Signature signature = request.signature;
  const int64_t first_dim = TakeFirstDim(signature);
  if (signature.kind == OpKind::kAllgather) {
    pending.first_dims.resize(size_);
    pending.first_dims[rank] = first_dim;
  }
  const auto group =
      std::find_if(pending.groups.begin(), pending.groups.end(), [&](const Group& candidate) {
        return candidate.signature == signature;
      });
  if (group != pending.groups.end()) {
    group->ranks.push_back(rank);
  } else {
    pending.groups.push_back({std::move(signature), {rank}});
  }
}

// A rank that has finished moves no data any more, even for what it had submitted; an agreement or
// a barrier only needed its word.
bool Sequencer::NeedsFinished(const Pending& pending) const {
  if (finished_.empty()) {
    return false;
  }
  const bool moves_data =
      std::any_of(pending.groups.begin(), pending.groups.end(), [](const Group& group) {
        return MovesData(group.signature.kind);
      });
  return moves_data || std::any_of(finished_.begin(), finished_.end(), [&](uint32_t rank) {
           return !pending.submitted[rank];
         });
}

// What only members wait for that have shut down keeps nobody waiting.
bool Sequencer::IsAwaited(const Pending& pending) const {
  const auto gone = std::count_if(
      finished_.begin(), finished_.end(), [&](uint32_t rank) { return pending.submitted[rank]; });
  return pending.count > static_cast<uint32_t>(gone);
}

bool Sequencer::HasFinished(uint32_t rank) const {
  return std::find(finished_.begin(), finished_.end(), rank) != finished_.end();
}

std::string Sequencer::FinishedText() const {
  std::vector<uint32_t> ranks = finished_;
  std::sort(ranks.begin(), ranks.end());
  return RankList(ranks) + (ranks.size() == 1 ? " has" : " have") + " finished and shut down";
}

void Sequencer::Decide(const std::string& name, Pending& pending) {
  std::vector<CallGroup> groups;
  for (const Group& group : pending.groups) {
    groups.push_back({&group.signature, &group.ranks});
  }
  std::string message = pending.objections.empty()
                            ? FindMismatch(name, groups, size_)
                            : "the call of '" + name + "' is wrong: " + Text(pending.objections);
  if (!message.empty()) {
    OperationKey key = {0, name};
    Forget(name);
    Append(Rejected{std::move(key), std::move(message)});
    return;
  }
  OperationKey key = KeyFor(name, pending);
  const Signature& signature = pending.groups.front().signature;
  if (key.id != 0) {
    known_[key.id] = {name, signature, pending.first_dims};
  }
  switch (signature.kind) {
    case OpKind::kAgreement:
      Append(Agreed{std::move(key), pending.vote});
      break;
    case OpKind::kBarrier:
      Append(BarrierPassed{std::move(key)});
      break;
    default:
      Append(Execute{std::move(key), std::move(pending.first_dims)});
  }
}

// The name travels until every rank must have seen the id, that is, with the first entry only. An
// agreement never goes by an id, not even by one that its name got for other calls: a request by id
// has no room for a vote.
OperationKey Sequencer::KeyFor(const std::string& name, const Pending& pending) {
  if (pending.groups.front().signature.kind == OpKind::kAgreement) {
    return {0, name};
  }
  const auto it = ids_.find(name);
  if (it != ids_.end()) {
    return {it->second, ""};
  }
  if (!pending.reusable || ids_.size() >= kIdLimit) {
    return {0, name};
  }
  ids_[name] = next_id_;
  return {next_id_++, name};
}

void Sequencer::Forget(const std::string& name) {
  const auto it = ids_.find(name);
  if (it != ids_.end()) {
    known_.erase(it->second);
    ids_.erase(it);
  }
}

void Sequencer::Finish(uint32_t rank) {
  MUSTER_CHECK(rank < size_, "a rank of this world");
  if (HasFinished(rank)) {
    return;
  }
  finished_.push_back(rank);
  Append(MemberFinished{rank});
  for (auto it = pending_.begin(); it != pending_.end();) {
    if (NeedsFinished(it->second)) {
      Append(Unserved{{0, it->first}, FinishedText()});
      it = pending_.erase(it);
    } else {
      ++it;
    }
  }
}

void Sequencer::Append(LogEntry entry) {
  entries_.push_back(std::move(entry));
}

std::vector<LogEntry> Sequencer::TakeEntries() {
  return std::exchange(entries_, {});
}

StallReport Sequencer::CheckStalls(Instant now, Duration warn, Duration shutdown) {
  StallReport report;
  for (auto& [name, pending] : pending_) {
    if (!IsAwaited(pending)) {
      continue;
    }
    const Duration waited = now - pending.since;
    const bool is_warning = warn > Duration::zero() && waited >= warn && !pending.warned;
    const bool is_lost = shutdown > Duration::zero() && waited >= shutdown;
    if (!is_warning && !is_lost) {
      continue;
    }
    Stall stall{name, {}, waited};
    for (uint32_t rank = 0; rank < size_; ++rank) {
      if (!pending.submitted[rank]) {
        stall.missing.push_back(rank);
      }
    }
    if (is_warning) {
      pending.warned = true;
      report.warnings.push_back(stall);
    }
    if (is_lost) {
      report.lost.push_back(std::move(stall));
    }
  }
  return report;
}

bool Sequencer::AllOthersFinished(uint32_t rank) const {
  return finished_.size() + (HasFinished(rank) ? 0 : 1) == size_;
}

}  // namespace muster::worker
