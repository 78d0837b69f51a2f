#include "worker/core/call_check.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>

#include "worker/core/dtype.h"

namespace muster::worker {
namespace {

using Text = std::function<std::string(const Signature&)>;

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
  for (auto& [value, ranks] : parts) {
    std::sort(ranks.begin(), ranks.end());
  }
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) {
    return a.second.front() < b.second.front();
  });
  std::string out;
  for (const auto& [value, ranks] : parts) {
    out += (out.empty() ? "" : "; ") + value + " on " + RankList(ranks);
  }
  return out;
}

bool HasTensor(OpKind kind) {
  return kind != OpKind::kBarrier && kind != OpKind::kAgreement;
}

std::string ShapeText(const Signature& signature) {
  if (signature.kind != OpKind::kAllgather || signature.shape.empty()) {
    return "shape " + ToString(signature.shape);
  }
  std::string text = ToString(signature.shape);
  text.replace(1, 1, "*");  // The first dimension, always zero here, may differ.
  return "shape " + text;
}

std::string Device(const Signature& signature) {
  return signature.device_kind == 0 ? "a tensor in host memory" : "a tensor on a GPU";
}

/// Every member of a signature, in the order in which the messages help most: a different operation
/// explains a different shape, not the other way round. What an operation has no use for is the
/// same on all ranks.
std::vector<Text> Checks() {
  return {[](const Signature& s) { return std::string("operation ") + Name(s.kind); },
          [](const Signature& s) { return std::string("dtype ") + Name(s.dtype); },
          ShapeText,
          [](const Signature& s) { return std::string("reduction ") + Name(s.op); },
          Factors,
          [](const Signature& s) { return "root " + std::to_string(s.root); },
          Device,
          [](const Signature& s) { return "process set " + std::to_string(s.set); }};
}

std::string FindReductionFault(const Signature& signature) {
  if (std::isnan(signature.prescale) || std::isnan(signature.postscale)) {
    return "a factor is not a number";
  }
  if (signature.op == Op::kAdasum) {
    return "the reduction adasum is not available";
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

}  // namespace

std::string RankList(const std::vector<uint32_t>& ranks) {
  constexpr size_t kShown = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const size_t shown = std::min(ranks.size(), kShown);
  for (size_t i = 0; i < shown; ++i) {
    const bool last = i + 1 == ranks.size();
    text += (i == 0 ? "" : last ? " and " : ", ") + std::to_string(ranks[i]);
  }
  const size_t hidden = ranks.size() - shown;
  return hidden == 0
             ? text
             : text + " and " + std::to_string(hidden) + (hidden == 1 ? " other" : " others");
}

std::string FindFault(const Signature& signature, uint32_t world_size) {
  if (signature.set != 0) {
    return "process set " + std::to_string(signature.set) + " does not exist";
  }
  if (!HasTensor(signature.kind)) {
    return "";
  }
  if (signature.device_kind != 0) {
    return "tensors on a GPU are not served by this build";
  }
  if (signature.kind == OpKind::kAllreduce) {
    return FindReductionFault(signature);
  }
  if (signature.kind == OpKind::kAllgather && signature.shape.empty()) {
    return "a tensor without dimensions cannot be gathered";
  }
  if (signature.kind == OpKind::kBroadcast &&
      (signature.root < 0 || static_cast<uint32_t>(signature.root) >= world_size)) {
    return "root " + std::to_string(signature.root) + " is not a rank of a world of " +
           std::to_string(world_size);
  }
  return "";
}

std::string FindMismatch(const std::string& name,
                         const std::vector<CallGroup>& groups,
                         uint32_t world_size) {
  for (const Text& check : Checks()) {
    const std::string differences = Differences(groups, check);
    if (!differences.empty()) {
      return "the calls of '" + name + "' differ: " + differences;
    }
  }
  const Signature& signature = *groups.front().signature;
  if (groups.size() > 1) {
    // Signatures that differ and read the same: only NaN is unequal to itself.
    return "the calls of '" + name + "' differ in " + Factors(signature) + " on every rank";
  }
  const std::string fault = FindFault(signature, world_size);
  return fault.empty() ? "" : std::string(Name(signature.kind)) + " of '" + name + "': " + fault;
}

}  // namespace muster::worker
