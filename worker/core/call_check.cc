#include "worker/core/call_check.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <limits>
#include <map>
#include <numeric>

#include "worker/core/dtype.h"

namespace muster::worker {
namespace {

using Text = std::function<std::string(const Signature&)>;

// Three values with their ranks, the name and the words between come to kMessageMax at the most.
constexpr size_t kNameMax = 80;
constexpr size_t kValueMax = 64;
constexpr size_t kRanksMax = 48;
constexpr size_t kValuesShown = 3;

/// Digits enough to tell any two doubles apart.
std::string Exact(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

std::string Factors(const Signature& signature) {
  return "prescale " + Exact(signature.prescale) + " and postscale " + Exact(signature.postscale);
}

/// The property's value of each rank, if they differ: "dtype f32 on rank 0; dtype f64 on rank 1".
std::string Differences(const std::vector<CallGroup>& groups, const Text& text) {
  std::map<std::string, std::vector<uint32_t>> ranks_by_value;
  for (const CallGroup& group : groups) {
    auto& ranks = ranks_by_value[text(*group.signature)];
    ranks.insert(ranks.end(), group.ranks->begin(), group.ranks->end());
  }
  if (ranks_by_value.size() < 2) {
    return "";
  }
  std::vector<std::pair<std::string, std::vector<uint32_t>>> parts(ranks_by_value.begin(),
                                                                   ranks_by_value.end());
  const auto first_rank = [](const auto& part) {
    return *std::min_element(part.second.begin(), part.second.end());
  };
  std::sort(parts.begin(), parts.end(), [&](const auto& a, const auto& b) {
    return first_rank(a) < first_rank(b);
  });
  std::string out;
  for (size_t i = 0; i < std::min(parts.size(), kValuesShown); ++i) {
    out += (out.empty() ? "" : "; ") + Clip(parts[i].first, kValueMax) + " on " +
           Clip(RankList(parts[i].second), kRanksMax);
  }
  if (parts.size() > kValuesShown) {
    out += "; and " + std::to_string(parts.size() - kValuesShown) + " more";
  }
  return out;
}

bool HasFreeFirstDimension(OpKind kind) {
  return kind == OpKind::kAllgather || kind == OpKind::kAlltoall;
}

std::string ShapeText(const Signature& signature) {
  if (!HasFreeFirstDimension(signature.kind) || signature.shape.empty()) {
    return "shape " + ToString(signature.shape);
  }
  std::string text = ToString(signature.shape);
  text.replace(1, 1, "*");  // The first dimension, always zero here, may differ.
  return "shape " + text;
}

std::string RootText(const Signature& signature) {
  return (signature.kind == OpKind::kRemoveSet ? "process set " : "root ") +
         std::to_string(signature.root);
}

std::string Device(const Signature& signature) {
  return signature.device_kind == 0 ? "a tensor in host memory" : "a tensor on a GPU";
}

std::string MembersText(const Signature& signature) {
  // Spelled out rank by rank: what differs must read differently, and negative ones are possible.
  std::string text = "ranks";
  for (const int32_t rank : signature.ranks) {
    text += " " + std::to_string(rank);
  }
  return signature.ranks.empty() ? "no ranks" : text;
}

std::string GroupText(const Signature& signature) {
  const GroupKey& group = signature.group;
  return group.name.empty() && group.size == 0 && group.index == 0
             ? "no group"
             : "member " + std::to_string(group.index) + " of " + std::to_string(group.size) +
                   " of group '" + group.name + "'";
}

/// Every member of a signature but the set, within which names are unique; in the order in which
/// the messages help most: a different operation explains a different shape, not the other way
/// round. What an operation has no use for is the same on all ranks.
std::vector<Text> Checks() {
  return {[](const Signature& s) { return std::string("operation ") + Name(s.kind); },
          [](const Signature& s) { return std::string("dtype ") + Name(s.dtype); },
          ShapeText,
          [](const Signature& s) { return std::string("reduction ") + Name(s.op); },
          Factors,
          RootText,
          Device,
          MembersText,
          GroupText};
}

std::string FindAdasumFault(const Signature& signature) {
  if (signature.kind != OpKind::kAllreduce) {
    return "adasum is for allreduce only";
  }
  if (!IsFloating(signature.dtype)) {
    return std::string("adasum is for floating-point types, not ") + Name(signature.dtype);
  }
  if (signature.set != 0) {
    return "adasum is for all workers, not for process set " + std::to_string(signature.set);
  }
  if (signature.prescale != 1 || signature.postscale != 1) {
    return "adasum takes no factors";
  }
  return "";
}

std::string FindReductionFault(const Signature& signature) {
  if (std::isnan(signature.prescale) || std::isnan(signature.postscale)) {
    return "a factor is not a number";
  }
  if (signature.op == Op::kAdasum) {
    return FindAdasumFault(signature);
  }
  if (signature.dtype == DType::kBool) {
    if (signature.op == Op::kAverage) {
      return "booleans have no average";
    }
    if (signature.prescale != 1 || signature.postscale != 1) {
      return "booleans cannot be scaled";
    }
  }
  return "";
}

std::string FindGroupFault(const Signature& signature) {
  const GroupKey& group = signature.group;
  if (group.name.empty()) {
    return "";
  }
  if (group.index >= group.size) {
    return "member " + std::to_string(group.index) + " of a group of " + std::to_string(group.size);
  }
  const bool may = signature.kind == OpKind::kAllreduce || signature.kind == OpKind::kAllgather ||
                   signature.kind == OpKind::kReducescatter;
  return may ? "" : std::string(Name(signature.kind)) + " cannot be in a group";
}

std::string FindRootFault(const Signature& signature,
                          const ProcessSets& sets,
                          const ProcessSets::Set& set) {
  const std::string root = "root " + std::to_string(signature.root);
  if (signature.root < 0 || static_cast<uint32_t>(signature.root) >= sets.world_size()) {
    return root + " is not a rank of a world of " + std::to_string(sets.world_size());
  }
  if (set.IndexOf(static_cast<uint32_t>(signature.root)) < 0) {
    return root + " is not in process set " + std::to_string(set.id) + " of " +
           RankList({set.ranks.begin(), set.ranks.end()});
  }
  return "";
}

std::string FindTensorFault(const Signature& signature,
                            const ProcessSets& sets,
                            const ProcessSets::Set& set) {
  if (signature.device_kind != 0) {
    return "tensors on a GPU are not served by this build";
  }
  if (!ElementCount(signature.shape, signature.dtype)) {
    return "the shape " + Clip(ToString(signature.shape), kValueMax) + " is impossible";
  }
  switch (signature.kind) {
    case OpKind::kAllreduce:
      return FindReductionFault(signature);
    case OpKind::kBroadcast:
      return FindRootFault(signature, sets, set);
    case OpKind::kReducescatter:
      return signature.shape.empty() ? "a tensor without dimensions cannot be scattered"
                                     : FindReductionFault(signature);
    case OpKind::kAllgather:
      return signature.shape.empty() ? "a tensor without dimensions cannot be gathered" : "";
    default:
      return signature.shape.empty() ? "a tensor without dimensions cannot be split" : "";
  }
}

}  // namespace

bool HasTensor(OpKind kind) {
  switch (kind) {
    case OpKind::kAllreduce:
    case OpKind::kAllgather:
    case OpKind::kBroadcast:
    case OpKind::kAlltoall:
    case OpKind::kReducescatter:
      return true;
    default:
      return false;
  }
}

std::string Clip(std::string text, size_t size) {
  constexpr std::string_view kDots = "...";
  if (text.size() <= size) {
    return text;
  }
  size_t end = size - std::min(size, kDots.size());
  // Not in the middle of a character of several bytes.
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) {
    --end;
  }
  text.resize(end);
  return text.append(kDots.substr(0, size - std::min(size, end)));
}

std::string Quoted(std::string_view name) {
  return "'" + Clip(std::string(name.substr(0, kNameMax + 1)), kNameMax) + "'";
}

std::string RankList(std::vector<uint32_t> ranks) {
  constexpr size_t kShown = 8;
  std::sort(ranks.begin(), ranks.end());
  std::vector<std::string> runs;
  size_t shown = 0;  // Ranks in these runs.
  while (shown < ranks.size() && runs.size() < kShown) {
    size_t end = shown + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) {
      ++end;
    }
    const bool is_range = end - shown > 2;
    runs.push_back(std::to_string(ranks[shown]) +
                   (is_range ? "-" + std::to_string(ranks[end - 1]) : ""));
    shown = is_range ? end : shown + 1;
  }
  const size_t hidden = ranks.size() - shown;
  if (hidden > 0) {
    runs.push_back(std::to_string(hidden) + (hidden == 1 ? " other" : " others"));
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < runs.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == runs.size() ? " and " : ", ") + runs[i];
  }
  return text;
}

std::string FindFault(const Signature& signature, const ProcessSets& sets) {
  const ProcessSets::Set* set = sets.Find(signature.set);
  if (set == nullptr || set->broken()) {
    return sets.FindUseFault(signature.set, 0);
  }
  const std::string fault = FindGroupFault(signature);
  if (!fault.empty()) {
    return fault;
  }
  if (HasTensor(signature.kind)) {
    return FindTensorFault(signature, sets, *set);
  }
  if (signature.kind == OpKind::kBarrier || signature.kind == OpKind::kAgreement) {
    return "";
  }
  if (signature.set != 0) {
    return "it is for all workers, not for process set " + std::to_string(signature.set);
  }
  switch (signature.kind) {
    case OpKind::kAddSet:
      return sets.FindAddFault(signature.ranks);
    case OpKind::kRemoveSet:
      return sets.FindRemoveFault(signature.root);
    default:
      return "";
  }
}

std::string FindMismatch(std::string_view name,
                         const std::vector<CallGroup>& groups,
                         const ProcessSets& sets) {
  if (groups.size() > 1) {
    for (const Text& check : Checks()) {
      const std::string differences = Differences(groups, check);
      if (!differences.empty()) {
        return Clip("the calls of " + Quoted(name) + " differ: " + differences);
      }
    }
    // Signatures that differ and read the same: only NaN is unequal to itself.
    return Clip("the calls of " + Quoted(name) + " differ in " +
                Factors(*groups.front().signature) + " on every rank");
  }
  const Signature& signature = *groups.front().signature;
  const std::string fault = FindFault(signature, sets);
  return fault.empty()
             ? ""
             : Clip(std::string(Name(signature.kind)) + " of " + Quoted(name) + ": " + fault);
}

std::string FindSplitsFault(int64_t rows, std::span<const int64_t> splits, size_t members) {
  if (splits.size() != members) {
    return std::to_string(splits.size()) + " splits for " + std::to_string(members) + " ranks";
  }
  int64_t rest = rows;
  for (const int64_t split : splits) {
    if (split < 0) {
      return "a split is negative: " + std::to_string(split);
    }
    if (split > rest) {
      return "the splits come to more than the " + std::to_string(rows) + " rows of the tensor";
    }
    rest -= split;
  }
  return rest == 0 ? ""
                   : "the splits come to " + std::to_string(rows - rest) +
                         " rows, the tensor has " + std::to_string(rows);
}

std::optional<std::vector<int64_t>> EqualSplits(int64_t rows, size_t members) {
  const auto count = static_cast<int64_t>(members);
  if (rows < 0 || count == 0 || rows % count != 0) {
    return std::nullopt;
  }
  return std::vector<int64_t>(members, rows / count);
}

std::optional<int64_t> TotalRows(const Signature& signature, std::span<const int64_t> rows) {
  if (signature.shape.empty()) {
    return std::nullopt;
  }
  int64_t total = 0;
  for (const int64_t count : rows) {
    if (count < 0 || count > std::numeric_limits<int64_t>::max() - total) {
      return std::nullopt;
    }
    total += count;
  }
  Shape shape = signature.shape;
  shape.front() = total;
  return ElementCount(shape, signature.dtype) ? std::optional(total) : std::nullopt;
}

std::optional<std::vector<int64_t>> ReceivedRows(const Signature& signature,
                                                 std::span<const int64_t> splits) {
  size_t members = 0;
  while (members * members < splits.size()) {
    ++members;
  }
  if (members * members != splits.size()) {
    return std::nullopt;
  }
  std::vector<int64_t> received(members);
  std::vector<int64_t> column(members);
  for (size_t to = 0; to < members; ++to) {
    for (size_t from = 0; from < members; ++from) {
      column[from] = splits[from * members + to];
    }
    const std::optional<int64_t> total = TotalRows(signature, column);
    if (!total) {
      return std::nullopt;
    }
    received[to] = *total;
  }
  return received;
}

}  // namespace muster::worker
