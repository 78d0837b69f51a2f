// The sequencer's view of ranks: who has joined, who has finished, who keeps others waiting.

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "worker/core/call_check.h"
#include "worker/core/sequencer.h"
#include "worker/core/sequencer_state.h"

namespace muster::worker {
namespace {

/// So that one group of thousands does not fill the log of messages.
constexpr size_t kGroupReportsMax = 8;

}  // namespace

std::string ToString(const Stall& stall) {
  return Clip(
      Quoted(stall.name) + (stall.set == 0 ? "" : " of process set " + std::to_string(stall.set)) +
      (stall.group.empty() ? "" : ", a member of group " + Quoted(stall.group) + ",") +
      " has been waiting for " +
      std::to_string(std::chrono::duration_cast<std::chrono::seconds>(stall.waited).count()) +
      " s: " + RankList(stall.missing) + " did not submit it");
}

// ---------------------------------------------------------------- join

Status Sequencer::SubmitJoin(uint32_t rank, const FullRequest& request) {
  Signature plain;
  plain.kind = OpKind::kJoin;
  if (request.signature != plain || !request.objection.empty() || !request.small.empty()) {
    return Status::Invalid("rank " + std::to_string(rank) + " joined in an impossible way");
  }
  if (!finished_.empty()) {
    tail_.Append(Unserved{{0, kJoinName, 0}, FinishedText()});
    return Status::Ok();
  }
  joined_.push_back(rank);
  joined_flags_[rank] = 1;
  LookAtAll();
  if (joined_.size() == sets_.world_size()) {
    tail_.Append(AllJoined{{0, kJoinName, 0}, joined_.back()});
    ClearJoined();
  }
  return Status::Ok();
}

void Sequencer::ClearJoined() {
  joined_.clear();
  std::fill(joined_flags_.begin(), joined_flags_.end(), 0);
}

std::vector<Sequencer::Operation*> Sequencer::PendingInOrder() const {
  std::vector<Operation*> operations = pending_;
  std::sort(operations.begin(), operations.end(), [](const Operation* a, const Operation* b) {
    return *a->name < *b->name;
  });
  return operations;
}

// By name, since a look at one may take others of its group with it.
void Sequencer::LookAtAll() {
  std::vector<Key> names;
  for (const Operation* operation : PendingInOrder()) {
    names.push_back(*operation->name);
  }
  for (const Key& name : names) {
    const auto it = operations_.find(KeyView(name));
    if (it != operations_.end() && it->second->place != Operation::kIdle) {
      Look(*it->second);
    }
  }
}

// ---------------------------------------------------------------- finish

void Sequencer::Finish(uint32_t rank) {
  MUSTER_CHECK(rank < sets_.world_size(), "a rank of this world");
  if (HasFinished(rank)) {
    return;
  }
  finished_.push_back(rank);
  finished_flags_[rank] = 1;
  tail_.Append(MemberFinished{rank});
  if (!joined_.empty()) {
    // Not all will ever have joined.
    ClearJoined();
    tail_.Append(Unserved{{0, kJoinName, 0}, FinishedText()});
  }
  for (Operation* operation : PendingInOrder()) {
    if (NeedsFinished(*operation)) {
      Drop(*operation);
    }
  }
}

void Sequencer::Drop(Operation& operation) {
  for (Group* group : operation.groups) {
    std::erase_if(group->held, [&](const auto& held) { return held.second == &operation; });
  }
  tail_.Append(Unserved{{0, operation.name->second, operation.set->id}, FinishedText()});
  Release(operation);
}

std::string Sequencer::FinishedText() const {
  return RankList(finished_) + (finished_.size() == 1 ? " has" : " have") +
         " finished and shut down";
}

// ---------------------------------------------------------------- stalls

std::vector<uint32_t> Sequencer::MissingRanks(const Operation& operation) const {
  std::vector<uint32_t> ranks;
  for (size_t index = 0; index < operation.size(); ++index) {
    if (IsAwaitedFrom(operation, index)) {
      ranks.push_back(static_cast<uint32_t>(operation.set->ranks[index]));
    }
  }
  return ranks;
}

StallReport Sequencer::CheckStalls(Instant now, Duration warn, Duration shutdown) {
  StallReport report;
  const auto add = [&](const Stall& stall, bool& warned) {
    if (stall.missing.empty()) {
      return;  // Of a group that ranks made up differently: nobody in particular is waited for.
    }
    if (warn > Duration::zero() && stall.waited >= warn && !warned) {
      report.warnings.push_back(stall);
    }
    if (shutdown > Duration::zero() && stall.waited >= shutdown) {
      report.lost.push_back(stall);
    }
  };
  const auto is_late = [&](Duration waited, bool warned) {
    return (warn > Duration::zero() && waited >= warn && !warned) ||
           (shutdown > Duration::zero() && waited >= shutdown);
  };
  for (Operation* operation : PendingInOrder()) {
    const Duration waited = now - operation->since;
    if (operation->held || !IsAwaited(*operation) || !is_late(waited, operation->warned)) {
      continue;
    }
    const auto& [set, name] = *operation->name;
    const std::string group =
        operation->groups.empty() ? "" : operation->groups.front()->name->second;
    add({set, name, group, MissingRanks(*operation), waited}, operation->warned);
    operation->warned = operation->warned || (warn > Duration::zero() && waited >= warn);
  }
  for (auto& [name, group] : groups_) {
    if (group->held.empty()) {
      continue;
    }
    Instant since = now;
    for (const auto& [index, member] : group->held) {
      since = std::min(since, member->since);
    }
    if (!is_late(now - since, group->warned)) {
      continue;
    }
    for (const Stall& stall : UnheardMembers(*group, now - since)) {
      add(stall, group->warned);
    }
    group->warned = group->warned || (warn > Duration::zero() && now - since >= warn);
  }
  return report;
}

/// The members of a group that nobody has submitted, while complete ones wait for them. Those that
/// some have submitted are pending themselves.
std::vector<Stall> Sequencer::UnheardMembers(const Group& group, Duration waited) const {
  std::map<uint32_t, std::string> names;  // As far as they are known from earlier calls.
  for (const auto& [name, operation] : operations_) {
    if (operation->call && operation->call->group == &group) {
      names[operation->call->signature.group.index] = name.second;
    }
  }
  std::vector<uint8_t> heard(
      std::min<size_t>(group.held_size, group.held.size() + pending_.size() + kGroupReportsMax));
  for (const Operation* operation : pending_) {
    const bool is_member = !operation->groups.empty() && operation->groups.front() == &group;
    if (is_member && operation->group_index < heard.size()) {
      heard[operation->group_index] = 1;
    }
  }
  std::vector<uint32_t> ranks;
  for (const int32_t rank : sets_.Find(group.name->first)->ranks) {
    if (joined_flags_[static_cast<size_t>(rank)] == 0) {
      ranks.push_back(static_cast<uint32_t>(rank));
    }
  }
  std::vector<Stall> stalls;
  for (uint32_t index = 0; index < heard.size() && stalls.size() < kGroupReportsMax; ++index) {
    if (heard[index] == 0 && !ranks.empty()) {
      const auto known = names.find(index);
      stalls.push_back({group.name->first,
                        known == names.end() ? "member " + std::to_string(index) : known->second,
                        group.name->second,
                        ranks,
                        waited});
    }
  }
  return stalls;
}

}  // namespace muster::worker
