#include "test/worker/core/log_judge.h"

#include <algorithm>

#include "worker/core/call_check.h"
#include "worker/core/dtype.h"

namespace muster::worker {
namespace {

bool MovesData(OpKind kind) {
  return kind != OpKind::kBarrier && kind != OpKind::kAgreement;
}

bool MayBeDoneWithoutJoined(const Signature& signature) {
  return signature.kind == OpKind::kBarrier || signature.kind == OpKind::kAgreement ||
         (signature.kind == OpKind::kAllreduce && signature.op != Op::kAdasum);
}

size_t Bytes(const Signature& signature) {
  return static_cast<size_t>(*ElementCount(signature.shape, signature.dtype)) *
         ElementSize(signature.dtype);
}

}  // namespace

bool Fit(const std::map<uint32_t, FullRequest>& calls, const ProcessSets& sets) {
  return std::all_of(calls.begin(), calls.end(), [&](const auto& item) {
    Signature signature = item.second.signature;
    const Signature& first = calls.begin()->second.signature;
    const bool free_first =
        signature.kind == OpKind::kAllgather || signature.kind == OpKind::kAlltoall;
    if (free_first && first.kind == signature.kind && !first.shape.empty() &&
        !signature.shape.empty()) {
      signature.shape.front() = first.shape.front();
    }
    return signature == first && item.second.objection.empty() &&
           FindFault(item.second.signature, sets).empty();
  });
}

LogJudge::LogJudge(uint32_t size, SequencerOptions options)
    : options_(options), sets_(ProcessSets::OfSize(size)) {}

void LogJudge::Arrive(uint32_t rank, const FullRequest& call) {
  if (said_bye_.contains(rank)) {
    return;
  }
  if (call.signature.kind == OpKind::kJoin) {
    if (said_bye_.empty()) {
      joined_.push_back(rank);
    }
    return;
  }
  if (sets_.Find(call.signature.set) != nullptr) {
    open_[{call.signature.set, call.name}][rank] = call;
  }
}

std::string LogJudge::NameOf(const OperationKey& key) const {
  return key.name.empty() ? name_of_.at(key.id) : key.name;
}

std::vector<uint32_t> LogJudge::Members(int32_t set) const {
  const ProcessSets::Set* found = sets_.Find(set);
  REQUIRE(found != nullptr);
  return {found->ranks.begin(), found->ranks.end()};
}

bool LogJudge::HasFinishedMember(int32_t set) const {
  const std::vector<uint32_t> members = Members(set);
  return std::any_of(
      members.begin(), members.end(), [&](uint32_t rank) { return finished_.contains(rank); });
}

LogJudge::Calls LogJudge::Take(const OperationKey& key) {
  if (key.id != 0 && !key.name.empty()) {
    REQUIRE(name_of_.emplace(key.id, key.name).second);  // No id twice.
  }
  auto node = open_.extract({key.set, NameOf(key)});
  INFO("an entry about " << NameOf(key) << " of set " << key.set);
  REQUIRE_FALSE(node.empty());
  return node.mapped();
}

LogJudge::Calls LogJudge::TakeServed(const OperationKey& key, bool in_world) {
  Calls calls = Take(key);
  REQUIRE((key.set == 0 || !in_world));
  REQUIRE(Fit(calls, sets_));
  for (const uint32_t rank : Members(key.set)) {
    const bool has_joined = std::find(joined_.begin(), joined_.end(), rank) != joined_.end();
    const bool may = has_joined && MayBeDoneWithoutJoined(calls.begin()->second.signature);
    REQUIRE((calls.contains(rank) || may));
  }
  return calls;
}

/// Whether there is a reason to reject it, beside the others of its group.
bool LogJudge::IsWrong(const OperationKey& key, const Calls& calls) const {
  const Signature& signature = calls.begin()->second.signature;
  const bool is_incomplete = calls.size() < Members(key.set).size();
  if (!Fit(calls, sets_) || (is_incomplete && !MayBeDoneWithoutJoined(signature))) {
    return true;
  }
  return signature.kind == OpKind::kRemoveSet &&
         std::any_of(open_.begin(), open_.end(), [&](const auto& open) {
           return open.first.first == signature.root;
         });
}

struct LogJudge::Visitor {
  LogJudge& judge;

  void operator()(const Execute& entry) const {
    std::vector<Calls> calls;
    REQUIRE_FALSE(entry.items.empty());
    for (const Item& item : entry.items) {
      REQUIRE(item.key.set == entry.set);
      calls.push_back(judge.TakeServed(item.key, false));
      REQUIRE_FALSE(judge.HasFinishedMember(entry.set));
      judge.JudgeItem(item, calls.back());
    }
    judge.JudgeFusion(entry, calls);
    judge.JudgeGroup(entry, calls);
    ++judge.counts_.executes;
    judge.counts_.items += entry.items.size();
    judge.counts_.fused += entry.items.size() > 1 ? entry.items.size() : 0;
  }

  void operator()(const SmallResult& entry) const {
    const Calls calls = judge.TakeServed(entry.key, false);
    REQUIRE_FALSE(judge.HasFinishedMember(entry.key.set));
    std::string sum(Bytes(calls.begin()->second.signature), '\0');
    for (const auto& [rank, call] : calls) {
      REQUIRE(call.small.size() == sum.size());
      for (size_t i = 0; i < sum.size(); ++i) {
        sum[i] = static_cast<char>(sum[i] + call.small[i]);
      }
    }
    REQUIRE(entry.bytes == sum);
    ++judge.counts_.small;
  }

  void operator()(const Agreed& entry) const {
    const Calls calls = judge.TakeServed(entry.key, false);
    REQUIRE(calls.begin()->second.signature.kind == OpKind::kAgreement);
    REQUIRE(entry.vote == std::any_of(calls.begin(), calls.end(), [](const auto& item) {
              return item.second.vote;
            }));
    ++judge.counts_.agreed;
  }

  void operator()(const BarrierPassed& entry) const {
    const Calls calls = judge.TakeServed(entry.key, false);
    REQUIRE(calls.begin()->second.signature.kind == OpKind::kBarrier);
    ++judge.counts_.barriers;
  }

  void operator()(const AllJoined& entry) const {
    REQUIRE(entry.key == OperationKey{0, kJoinName});
    REQUIRE(judge.joined_.size() == judge.sets_.world_size());
    REQUIRE(entry.last_rank == judge.joined_.back());
    judge.joined_.clear();
    ++judge.counts_.all_joined;
  }

  void operator()(const SetAdded& entry) const {
    const Calls calls = judge.TakeServed(entry.key, true);
    REQUIRE(calls.begin()->second.signature.ranks == entry.ranks);
    REQUIRE(judge.sets_.Add(entry.ranks) == entry.set);
    ++judge.counts_.sets_added;
  }

  // What comes after the decision and before it is read here counts for nothing.
  void operator()(const SetRemoved& entry) const {
    const Calls calls = judge.TakeServed(entry.key, true);
    REQUIRE(calls.begin()->second.signature.root == entry.set);
    judge.sets_.Remove(entry.set);
    std::erase_if(judge.open_, [&](const auto& open) { return open.first.first == entry.set; });
    ++judge.counts_.sets_removed;
  }

  void operator()(const Rejected& entry) const {
    REQUIRE(entry.key.id == 0);
    const Calls calls = judge.Take(entry.key);
    for (const uint32_t rank : judge.Members(entry.key.set)) {
      const bool has_joined =
          std::find(judge.joined_.begin(), judge.joined_.end(), rank) != judge.joined_.end();
      REQUIRE((calls.contains(rank) || has_joined));
    }
    INFO(entry.message);
    REQUIRE(entry.message.size() <= kMessageMax);
    REQUIRE(entry.message.find("'" + entry.key.name + "'") != std::string::npos);
    const bool by_its_group = entry.message.find(" is in group '") != std::string::npos;
    REQUIRE((by_its_group || judge.IsWrong(entry.key, calls)));
    REQUIRE((!by_its_group || !calls.begin()->second.signature.group.name.empty()));
    ++judge.counts_.rejected;
  }

  void operator()(const Unserved& entry) const {
    REQUIRE_FALSE(judge.finished_.empty());
    const std::string gone = RankList({judge.finished_.begin(), judge.finished_.end()});
    REQUIRE(entry.message ==
            gone + (judge.finished_.size() == 1 ? " has" : " have") + " finished and shut down");
    ++judge.counts_.unserved;
    if (entry.key == OperationKey{0, kJoinName}) {
      judge.joined_.clear();
      return;
    }
    const std::pair<int32_t, std::string> name(entry.key.set, judge.NameOf(entry.key));
    if (!judge.open_.contains(name)) {
      // Several ranks asked before the first answer was taken: it was for all of them, but the
      // coordinator answers each.
      REQUIRE(judge.unserved_.contains(name));
      return;
    }
    judge.unserved_.insert(name);
    const Calls calls = judge.Take(entry.key);
    const auto moves = [](const auto& call) { return MovesData(call.second.signature.kind); };
    bool lacks_finished = false;
    for (const uint32_t rank : judge.Members(entry.key.set)) {
      lacks_finished = lacks_finished || (judge.finished_.contains(rank) && !calls.contains(rank));
    }
    REQUIRE(judge.HasFinishedMember(entry.key.set));
    REQUIRE((lacks_finished || std::any_of(calls.begin(), calls.end(), moves)));
  }

  void operator()(const MemberFinished& entry) const {
    REQUIRE(judge.said_bye_.contains(entry.rank));
    REQUIRE(judge.finished_.insert(entry.rank).second);
  }
};

void LogJudge::Judge(const LogEntry& entry) {
  REQUIRE((group_left_ == 0 || std::holds_alternative<Execute>(entry)));
  std::visit(Visitor{*this}, entry);
}

void LogJudge::JudgeItem(const Item& item, const Calls& calls) {
  const std::vector<uint32_t> members = Members(item.key.set);
  const Signature& signature = calls.begin()->second.signature;
  REQUIRE(item.joined.size() == (calls.size() == members.size() ? 0 : 1));
  REQUIRE((item.joined.empty() || item.joined.front() == signature));
  counts_.with_joined += item.joined.size();
  std::vector<int64_t> dims;
  for (const uint32_t rank : members) {
    const auto it = calls.find(rank);
    if (signature.kind == OpKind::kAllgather) {
      dims.push_back(it->second.signature.shape.front());
    } else if (signature.kind == OpKind::kAlltoall) {
      dims.insert(dims.end(), it->second.splits.begin(), it->second.splits.end());
    }
  }
  REQUIRE(item.dims == dims);
}

void LogJudge::JudgeFusion(const Execute& entry, const std::vector<Calls>& calls) {
  if (entry.items.size() == 1) {
    return;
  }
  size_t bytes = 0;
  const Signature& first = calls.front().begin()->second.signature;
  for (const Calls& of_item : calls) {
    const Signature& signature = of_item.begin()->second.signature;
    REQUIRE(signature.kind == OpKind::kAllreduce);
    REQUIRE(signature.op != Op::kAdasum);
    REQUIRE(ClassOf(signature) == ClassOf(first));
    REQUIRE(signature.group.name == first.group.name);
    bytes += Bytes(signature);
  }
  REQUIRE((!first.group.name.empty() || bytes <= options_.fusion_bytes));
}

void LogJudge::JudgeGroup(const Execute& entry, const std::vector<Calls>& calls) {
  const GroupKey& first = calls.front().begin()->second.signature.group;
  if (group_left_ == 0 && !first.name.empty()) {
    group_ = first.name;
    group_left_ = first.size;
  }
  REQUIRE((group_left_ == 0 ? "" : group_) == first.name);
  if (group_left_ == 0) {
    return;
  }
  for (size_t i = 1; i < calls.size(); ++i) {
    REQUIRE(calls[i - 1].begin()->second.signature.group.index <
            calls[i].begin()->second.signature.group.index);
  }
  REQUIRE(entry.items.size() <= group_left_);
  group_left_ -= entry.items.size();
  counts_.grouped += entry.items.size();
}

void LogJudge::CheckNothingIsOpen() const {
  for (const auto& [name, calls] : open_) {
    INFO("still open: " << name.second << " of set " << name.first);
    CHECK(false);
  }
  CHECK(group_left_ == 0);
}

}  // namespace muster::worker
