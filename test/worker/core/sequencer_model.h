#pragma once

// Model: the sequencer in the plainest words, for operations of all ranks that change neither the
// sets nor who takes part: no ids, every call kept in full. What it expects is compared with what
// the sequencer appends.
//
// Test support. Threads: one at a time.

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "test/worker/core/call_parts.h"
#include "test/worker/core/log_fixture.h"
#include "worker/core/call_check.h"

namespace muster::worker {

inline constexpr Duration kWarn = seconds(60);
inline constexpr Duration kShutdown = seconds(200);

/// What has to be appended next. The texts are parts of the message.
struct Expected {
  size_t kind = 0;  // The index in LogEntry.
  std::string name;
  bool vote = false;
  std::vector<int64_t> dims;
  std::vector<std::string> texts;
};

template <class Entry>
size_t KindOf() {
  return LogEntry(Entry{}).index();
}

/// The sequencer in the plainest words: no ids, no groups, every call kept in full.
class Model {
 public:
  explicit Model(uint32_t size) : size_(size) {}

  std::vector<Expected> Arrive(uint32_t rank, const FullRequest& call, Instant now) {
    if (finished_.contains(rank)) {
      return {};
    }
    Open& open = open_[call.name];
    if (!HasLiving(open)) {
      open.since = now;
    }
    open.calls[rank] = call;
    std::vector<Expected> out;
    if (IsUnserved(open)) {
      out.push_back(Unserved(call.name));
    } else if (open.calls.size() == size_) {
      out.push_back(Decide(call.name, open.calls));
    }
    if (!out.empty()) {
      open_.erase(call.name);
    }
    return out;
  }

  std::vector<Expected> Finish(uint32_t rank) {
    if (!finished_.insert(rank).second) {
      return {};
    }
    std::vector<Expected> out = {{KindOf<MemberFinished>(), std::to_string(rank)}};
    for (auto it = open_.begin(); it != open_.end();) {
      const bool is_unserved = IsUnserved(it->second);
      if (is_unserved) {
        out.push_back(Unserved(it->first));
      }
      it = is_unserved ? open_.erase(it) : std::next(it);
    }
    return out;
  }

  StallReport Stalls(Instant now) {
    StallReport report;
    for (auto& [name, open] : open_) {
      if (!HasLiving(open)) {
        continue;
      }
      Stall stall{0, name, "", {}, now - open.since};
      for (uint32_t rank = 0; rank < size_; ++rank) {
        if (!open.calls.contains(rank)) {
          stall.missing.push_back(rank);
        }
      }
      if (stall.waited >= kWarn && !std::exchange(open.warned, true)) {
        report.warnings.push_back(stall);
      }
      if (stall.waited >= kShutdown) {
        report.lost.push_back(stall);
      }
    }
    return report;
  }

  const FullRequest* FirstCall(const std::string& name) const {
    const auto it = open_.find(name);
    return it == open_.end() ? nullptr : &it->second.calls.begin()->second;
  }
  bool HasCalled(uint32_t rank, const std::string& name) const {
    const auto it = open_.find(name);
    return it != open_.end() && it->second.calls.contains(rank);
  }
  bool IsFinished(uint32_t rank) const { return finished_.contains(rank); }
  size_t finished_count() const { return finished_.size(); }
  size_t open_count() const { return open_.size(); }
  std::vector<std::string> open_names() const {
    std::vector<std::string> names;
    for (const auto& [name, open] : open_) {
      names.push_back(name);
    }
    return names;
  }

 private:
  struct Open {
    Calls calls;
    Instant since;
    bool warned = false;
  };

  bool HasLiving(const Open& open) const {
    return std::any_of(open.calls.begin(), open.calls.end(), [this](const auto& call) {
      return !finished_.contains(call.first);
    });
  }

  bool IsUnserved(const Open& open) const {
    const bool moves = std::any_of(open.calls.begin(), open.calls.end(), [](const auto& call) {
      return MovesData(call.second);
    });
    return std::any_of(finished_.begin(), finished_.end(), [&](uint32_t rank) {
      return moves || !open.calls.contains(rank);
    });
  }

  Expected Unserved(const std::string& name) const {
    const std::vector<uint32_t> ranks(finished_.begin(), finished_.end());
    return {KindOf<worker::Unserved>(), name, false, {}, {RankList(ranks)}};
  }

  Expected Decide(const std::string& name, const Calls& calls) const {
    Expected out{KindOf<Rejected>(), name, false, {}, {"'" + name + "'"}};
    bool is_wrong = false;
    for (const auto& [rank, call] : calls) {
      out.vote = out.vote || call.vote;
      if (!call.objection.empty()) {
        is_wrong = true;
        out.texts.insert(out.texts.end(), {call.objection, std::to_string(rank)});
      }
    }
    const auto parts = Parts(calls);
    if (!is_wrong && parts.size() > 1) {
      is_wrong = true;
      for (const auto& ranks : parts) {
        out.texts.push_back("on " + RankList(ranks));
      }
    }
    const Signature& signature = calls.begin()->second.signature;
    if (!is_wrong && signature.root >= static_cast<int32_t>(size_)) {
      is_wrong = true;
      out.texts.push_back("root " + std::to_string(signature.root));
    }
    if (!is_wrong) {
      out.texts.clear();
      FillOutcome(out, calls);
    }
    return out;
  }

  static void FillOutcome(Expected& out, const Calls& calls) {
    switch (calls.begin()->second.signature.kind) {
      case OpKind::kAgreement:
        out.kind = KindOf<Agreed>();
        return;
      case OpKind::kBarrier:
        out.kind = KindOf<BarrierPassed>();
        return;
      case OpKind::kAllgather:
        for (const auto& [rank, call] : calls) {
          out.dims.push_back(call.signature.shape.front());
        }
        out.kind = KindOf<Execute>();
        return;
      case OpKind::kAlltoall:
        for (const auto& [rank, call] : calls) {
          out.dims.insert(out.dims.end(), call.splits.begin(), call.splits.end());
        }
        [[fallthrough]];
      default:
        out.kind = KindOf<Execute>();
    }
  }

  const uint32_t size_;
  std::map<std::string, Open> open_;
  std::set<uint32_t> finished_;
};

}  // namespace muster::worker
