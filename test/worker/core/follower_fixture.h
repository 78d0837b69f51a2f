#pragma once

// A follower with two process sets, and entries for it in few words.
//
// Test support. Threads: one at a time.

#include <string>
#include <utility>
#include <vector>

#include "test/worker/core/log_fixture.h"

namespace muster::worker {

using Tickets = std::vector<Ticket>;

/// Rank 1 of a world of three with the sets 1 = {1, 2} and 2 = {0, 2}.
inline ProcessSets Sets() {
  ProcessSets sets = ProcessSets::OfSize(3);
  sets.Add({1, 2});
  sets.Add({0, 2});
  return sets;
}

class Follower : public LogFollower {
 public:
  Follower() : LogFollower(1, Sets()) {}
};

inline uint32_t MustSubmit(LogFollower& follower, Ticket ticket, const FullRequest& request) {
  const Result<uint32_t> result = follower.Submit(
      ticket, request.name, request.signature, request.splits, !request.objection.empty());
  INFO(result.status().message());
  REQUIRE(result.ok());
  return result.value();
}

inline FollowStep MustApply(LogFollower& follower, const LogEntry& entry) {
  Result<FollowStep> step = follower.Apply(entry);
  INFO(step.status().message());
  REQUIRE(step.ok());
  return std::move(step).value();
}

inline bool IsRefused(LogFollower& follower, const LogEntry& entry) {
  return !follower.Apply(entry).ok();
}

inline Execute Run(std::vector<Item> items, int32_t set = 0) {
  return Execute{set, std::move(items)};
}

inline Execute RunOne(OperationKey key, std::vector<int64_t> dims = {}) {
  const int32_t set = key.set;
  return Run({Item{std::move(key), std::move(dims), {}}}, set);
}

inline Execute RunJoined(OperationKey key, const Signature& signature) {
  const int32_t set = key.set;
  return Run({Item{std::move(key), {}, {signature}}}, set);
}

inline const FullRequest kCall = Named("w", Sum({4}));

}  // namespace muster::worker
