#pragma once

// In what the calls of ranks differ, for the model of the sequencer.
//
// Test support. Pure functions.

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "test/worker/core/log_fixture.h"

namespace muster::worker {

/// The kinds that the model knows: those that change neither the sets nor who takes part.
inline constexpr OpKind kKinds[] = {OpKind::kAllreduce,
                                    OpKind::kAllgather,
                                    OpKind::kBroadcast,
                                    OpKind::kAlltoall,
                                    OpKind::kReducescatter,
                                    OpKind::kBarrier,
                                    OpKind::kAgreement};

inline bool MovesData(const FullRequest& call) {
  return call.signature.kind != OpKind::kBarrier && call.signature.kind != OpKind::kAgreement;
}

inline bool HasFreeFirstDimension(const Signature& signature) {
  return signature.kind == OpKind::kAllgather || signature.kind == OpKind::kAlltoall;
}

/// What one rank calls under a name, and what the others do.
using Calls = std::map<uint32_t, FullRequest>;

/// The first thing in which the calls differ: the ranks of each value. One part: they are alike.
inline std::vector<std::vector<uint32_t>> Parts(const Calls& calls) {
  using Text = std::function<std::string(const Signature&)>;
  const Text texts[] = {
      [](const Signature& s) { return std::to_string(static_cast<int>(s.kind)); },
      [](const Signature& s) { return std::to_string(static_cast<int>(s.dtype)); },
      [](const Signature& s) {
        std::string text;
        for (size_t i = HasFreeFirstDimension(s) ? 1 : 0; i < s.shape.size(); ++i) {
          text += std::to_string(s.shape[i]) + ",";
        }
        return text;
      },
      [](const Signature& s) { return std::to_string(static_cast<int>(s.op)); },
      [](const Signature& s) { return std::to_string(s.prescale); },
      [](const Signature& s) { return std::to_string(s.root); }};
  std::map<std::string, std::vector<uint32_t>> parts;
  for (const Text& text : texts) {
    parts.clear();
    for (const auto& [rank, call] : calls) {
      parts[text(call.signature)].push_back(rank);
    }
    if (parts.size() > 1) {
      break;
    }
  }
  std::vector<std::vector<uint32_t>> ranks;
  for (const auto& [text, of_value] : parts) {
    ranks.push_back(of_value);
  }
  return ranks;
}

}  // namespace muster::worker
