#include "bench/world_view.h"

#include <catch2/catch.hpp>

namespace muster::bench {
namespace {

TraceEvent Of(const std::string& kind,
              uint64_t worker,
              int rank,
              uint64_t generation,
              int64_t t_ns = 1,
              int size = 2) {
  return {.kind = kind,
          .t_ns = t_ns,
          .generation = generation,
          .incarnation = worker,
          .pid = static_cast<pid_t>(100 + worker),
          .rank = rank,
          .size = size};
}

WorldView TrainingPair() {
  WorldView view;
  view.Add(Of("world", 1, 0, 1));
  view.Add(Of("world", 2, 1, 1));
  view.Add(Of("step", 1, 0, 1, 20));
  view.Add(Of("step", 2, 1, 1, 10));
  return view;
}

}  // namespace

TEST_CASE("a world trains once every member has finished a step in it") {
  WorldView view;
  CHECK_FALSE(view.Trains(2));
  view.Add(Of("world", 1, 0, 1));
  view.Add(Of("step", 1, 0, 1));
  CHECK_FALSE(view.Trains(2));
  view.Add(Of("world", 2, 1, 1));
  CHECK_FALSE(view.Trains(2));
  view.Add(Of("step", 2, 1, 1));
  CHECK(view.Trains(2));
  CHECK_FALSE(view.Trains(1));
}

TEST_CASE("it trains since the first step of its slowest member") {
  WorldView view = TrainingPair();
  view.Add(Of("step", 1, 0, 1, 30));
  CHECK(view.trains_since_ns() == 20);
}

TEST_CASE("the newest world counts, and its members by rank") {
  WorldView view = TrainingPair();
  view.Add(Of("world", 3, 1, 2));
  CHECK(view.generation() == 2);
  CHECK_FALSE(view.Trains(2));
  // A line of the older world that was read late.
  view.Add(Of("world", 2, 1, 1));
  view.Add(Of("step", 3, 1, 1));
  view.Add(Of("world", 1, 0, 2));
  const auto members = view.members();
  REQUIRE(members.size() == 2);
  CHECK(members[0].incarnation == 1);
  CHECK(members[1].incarnation == 3);
  CHECK(members[1].pid == 103);
  CHECK(members[1].first_step_ns == 0);
}

TEST_CASE("whoever has called init() waits until it enters a world or ends") {
  WorldView view;
  for (const uint64_t worker : {1, 2, 3}) {
    view.Add(Of("init", worker, 0, 0));
  }
  CHECK(view.waiting() == 3);
  view.Add(Of("world", 1, 0, 1));
  CHECK(view.waiting() == 2);
  view.Add(Of("reaped", 2, -1, 0));
  CHECK(view.waiting() == 1);
}

}  // namespace muster::bench
