#pragma once

// Calls and entries in few words, for the tests of the log.
//
// Values; no threads involved.

#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "worker/core/log_follower.h"
#include "worker/core/sequencer.h"

namespace muster::worker {

using std::chrono::seconds;

inline Instant At(int second) {
  return Instant(seconds(second));
}

inline Signature Tensor(OpKind kind, Shape shape, DType dtype = DType::kF32, int32_t set = 0) {
  Signature signature;
  signature.kind = kind;
  signature.dtype = dtype;
  signature.shape = std::move(shape);
  signature.set = set;
  return signature;
}

inline Signature Sum(Shape shape, int32_t set = 0) {
  return Tensor(OpKind::kAllreduce, std::move(shape), DType::kF32, set);
}

inline Signature Plain(OpKind kind, int32_t set = 0) {
  Signature signature;
  signature.kind = kind;
  signature.set = set;
  return signature;
}

/// A call that will come again.
inline FullRequest Named(std::string name, Signature signature) {
  FullRequest request;
  request.name = std::move(name);
  request.signature = std::move(signature);
  request.reusable = true;
  return request;
}

inline FullRequest OfKind(std::string name, OpKind kind, bool vote = false, int32_t set = 0) {
  FullRequest request;
  request.name = std::move(name);
  request.signature = Plain(kind, set);
  request.vote = vote;
  return request;
}

inline FullRequest Join() {
  return OfKind(kJoinName, OpKind::kJoin);
}

inline FullRequest AddSet(std::vector<int32_t> ranks, std::string name = "add") {
  FullRequest request = OfKind(std::move(name), OpKind::kAddSet);
  request.signature.ranks = std::move(ranks);
  return request;
}

inline FullRequest RemoveSet(int32_t set, std::string name = "remove") {
  FullRequest request = OfKind(std::move(name), OpKind::kRemoveSet);
  request.signature.root = set;
  return request;
}

inline FullRequest Member(
    std::string name, Signature signature, std::string group, uint32_t size, uint32_t index) {
  signature.group = {std::move(group), size, index};
  return Named(std::move(name), std::move(signature));
}

inline FullRequest WithSplits(std::string name, Shape shape, std::vector<int64_t> splits) {
  FullRequest request = Named(std::move(name), Tensor(OpKind::kAlltoall, std::move(shape)));
  request.splits = std::move(splits);
  return request;
}

/// The sum of bytes, so that a small allreduce of u8 can be told from one that was never computed.
inline std::string AddBytes(const Signature& /*signature*/,
                            const std::vector<const std::string*>& inputs,
                            uint32_t divisor) {
  std::string sum;
  for (const std::string* input : inputs) {
    if (input == nullptr) {
      continue;
    }
    sum.resize(input->size());
    for (size_t i = 0; i < sum.size(); ++i) {
      sum[i] = static_cast<char>(sum[i] + (*input)[i]);
    }
  }
  REQUIRE(divisor == inputs.size());
  return sum;
}

/// Of set 0 only, if no sets are given.
class TestSequencer : public Sequencer {
 public:
  explicit TestSequencer(uint32_t size, SequencerOptions options = {})
      : Sequencer(ProcessSets::OfSize(size), options, AddBytes) {}
  explicit TestSequencer(ProcessSets sets, SequencerOptions options = {})
      : Sequencer(std::move(sets), options, AddBytes) {}
};

inline void MustSubmit(Sequencer& sequencer,
                       uint32_t rank,
                       const Request& request,
                       int second = 0) {
  const Status status = sequencer.Submit(rank, request, At(second));
  INFO(status.message());
  REQUIRE(status.ok());
}

/// The same call of several ranks.
inline void AllSubmit(Sequencer& sequencer,
                      const std::vector<uint32_t>& ranks,
                      const Request& request) {
  for (const uint32_t rank : ranks) {
    MustSubmit(sequencer, rank, request);
  }
}

template <class Entry>
Entry TakeOnly(Sequencer& sequencer) {
  const std::vector<LogEntry> entries = sequencer.TakeEntries();
  REQUIRE(entries.size() == 1);
  REQUIRE(std::holds_alternative<Entry>(entries.front()));
  return std::get<Entry>(entries.front());
}

/// The only operation that is executed.
inline Item TakeItem(Sequencer& sequencer) {
  const auto entry = TakeOnly<Execute>(sequencer);
  REQUIRE(entry.items.size() == 1);
  REQUIRE(entry.items.front().key.set == entry.set);
  return entry.items.front();
}

/// What the entries do, in short: "run(a b) agreed(v) no(w)". Ids in place of names not spelled
/// out.
inline std::string Story(const std::vector<LogEntry>& entries) {
  struct Teller {
    static std::string Key(const OperationKey& key) {
      const std::string set = key.set == 0 ? "" : "@" + std::to_string(key.set);
      return (key.name.empty() ? "#" + std::to_string(key.id) : key.name) + set;
    }
    std::string operator()(const Execute& entry) const {
      std::string text = "run(";
      for (const Item& item : entry.items) {
        text += (text.back() == '(' ? "" : " ") + Key(item.key) + (item.joined.empty() ? "" : "*");
      }
      return text + ")";
    }
    std::string operator()(const SmallResult& e) const { return "small(" + Key(e.key) + ")"; }
    std::string operator()(const Agreed& e) const { return "agreed(" + Key(e.key) + ")"; }
    std::string operator()(const BarrierPassed& e) const { return "barrier(" + Key(e.key) + ")"; }
    std::string operator()(const AllJoined& e) const {
      return "joined(" + std::to_string(e.last_rank) + ")";
    }
    std::string operator()(const SetAdded& e) const { return "set+" + std::to_string(e.set); }
    std::string operator()(const SetRemoved& e) const { return "set-" + std::to_string(e.set); }
    std::string operator()(const Rejected& e) const { return "no(" + Key(e.key) + ")"; }
    std::string operator()(const Unserved& e) const { return "unserved(" + Key(e.key) + ")"; }
    std::string operator()(const MemberFinished& e) const {
      return "finished(" + std::to_string(e.rank) + ")";
    }
  };
  std::string story;
  for (const LogEntry& entry : entries) {
    story += (story.empty() ? "" : " ") + std::visit(Teller(), entry);
  }
  return story;
}

inline bool Contains(const std::string& text, const std::string& part) {
  INFO("looking for '" << part << "' in: " << text);
  const bool found = text.find(part) != std::string::npos;
  CHECK(found);
  return found;
}

}  // namespace muster::worker
