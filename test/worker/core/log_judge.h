#pragma once

// LogJudge: looks at each entry of the log when it is taken, and fails the test unless what the
// ranks have asked for so far justifies it. It keeps every call in full and knows neither ids nor
// slots; so it agrees with the sequencer only if both are right.
//
// Test support. Threads: one at a time.

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "test/worker/core/log_fixture.h"

namespace muster::worker {

class LogJudge {
 public:
  struct Counts {
    size_t executes = 0;
    size_t items = 0;
    size_t fused = 0;
    size_t grouped = 0;
    size_t with_joined = 0;
    size_t small = 0;
    size_t agreed = 0;
    size_t barriers = 0;
    size_t all_joined = 0;
    size_t sets_added = 0;
    size_t sets_removed = 0;
    size_t rejected = 0;
    size_t unserved = 0;
  };

  LogJudge(uint32_t size, SequencerOptions options);

  /// The coordinator has read this call of the rank, or its Bye.
  void Arrive(uint32_t rank, const FullRequest& call);
  void Leave(uint32_t rank) { said_bye_.insert(rank); }

  void Judge(const LogEntry& entry);

  /// The name that the entry's key stands for, once it has been judged.
  std::string NameOf(const OperationKey& key) const;
  /// After the last entry.
  void CheckNothingIsOpen() const;
  const Counts& counts() const { return counts_; }

 private:
  using Calls = std::map<uint32_t, FullRequest>;  // By rank of the world.
  using Name = std::pair<int32_t, std::string>;
  struct Visitor;

  Calls Take(const OperationKey& key);
  /// As Take, for what is served: by all who have not joined, in calls that fit.
  Calls TakeServed(const OperationKey& key, bool in_world);
  std::vector<uint32_t> Members(int32_t set) const;
  bool HasFinishedMember(int32_t set) const;
  bool IsWrong(const OperationKey& key, const Calls& calls) const;
  void JudgeItem(const Item& item, const Calls& calls);
  void JudgeFusion(const Execute& entry, const std::vector<Calls>& calls);
  void JudgeGroup(const Execute& entry, const std::vector<Calls>& calls);

  const SequencerOptions options_;
  ProcessSets sets_;
  std::map<Name, Calls> open_;
  std::map<uint32_t, std::string> name_of_;
  std::set<Name> unserved_;
  std::vector<uint32_t> joined_;
  std::set<uint32_t> said_bye_;  // As the coordinator has read it.
  std::set<uint32_t> finished_;  // As the log says.
  std::string group_;            // That is being executed: nothing else may come between.
  size_t group_left_ = 0;
  Counts counts_;
};

/// Whether the calls that ranks have made under one name fit together.
bool Fit(const std::map<uint32_t, FullRequest>& calls, const ProcessSets& sets);

}  // namespace muster::worker
