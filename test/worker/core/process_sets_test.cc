#include "worker/core/process_sets.h"

#include <catch2/catch.hpp>

namespace muster::worker {
namespace {

using Ranks = std::vector<int32_t>;

/// A world of six with the sets 1 = {0, 2, 5} and 2 = {1, 2}.
ProcessSets Example() {
  ProcessSets sets({10, 11, 12, 13, 14, 15});
  sets.Add({0, 2, 5});
  sets.Add({1, 2});
  return sets;
}

}  // namespace

TEST_CASE("process sets begin with the set of all workers") {
  const ProcessSets sets = ProcessSets::OfSize(3);
  CHECK(sets.world_size() == 3);
  CHECK(sets.world().ranks == Ranks{0, 1, 2});
  REQUIRE(sets.Find(0) != nullptr);
  CHECK(sets.Find(0)->id == 0);
  CHECK(sets.Find(1) == nullptr);
  CHECK(sets.Find(-1) == nullptr);
  CHECK(sets.all().size() == 1);
  CHECK(sets.next_id() == 1);
  CHECK(sets.ToRecords().empty());
}

TEST_CASE("process sets tell each member its place, and others that they have none") {
  const ProcessSets sets = Example();
  const ProcessSets::Set& set = *sets.Find(1);
  const int expected[] = {0, -1, 1, -1, -1, 2, -1};
  for (uint32_t rank = 0; rank < 7; ++rank) {
    CHECK(set.IndexOf(rank) == expected[rank]);
    CHECK(sets.world().IndexOf(rank) == (rank < 6 ? static_cast<int>(rank) : -1));
  }
  CHECK(set.IndexOf(UINT32_MAX) == -1);
  // A rank in front of which members are missing, at an index that is another rank.
  CHECK(sets.Find(2)->IndexOf(0) == -1);
  CHECK(sets.Find(2)->IndexOf(1) == 0);
  CHECK(sets.Find(2)->IndexOf(2) == 1);
}

TEST_CASE("process sets give growing ids and never one twice") {
  ProcessSets sets = Example();
  CHECK(sets.next_id() == 3);
  sets.Remove(2);
  CHECK(sets.Find(2) == nullptr);
  CHECK(sets.next_id() == 3);
  CHECK(sets.Add({1, 2}) == 3);
  CHECK(sets.Add({4}) == 4);
}

TEST_CASE("process sets keep a set where it is while others come and go") {
  ProcessSets sets = Example();
  const ProcessSets::Set* first = sets.Find(1);
  for (int i = 0; i < 50; ++i) {
    sets.Remove(sets.Add({3, 4}));
  }
  CHECK(sets.Find(1) == first);
}

TEST_CASE("process sets refuse ranks that make up no new set") {
  const ProcessSets sets = Example();
  const std::pair<Ranks, std::string> rows[] = {
      {{}, "a process set needs a rank"},
      {{0, 6}, "rank 6 is not in a world of 6"},
      {{-1, 2}, "rank -1 is not in a world of 6"},
      {{2, 1}, "the ranks of the process set do not grow"},
      {{1, 1}, "rank 1 is in the process set twice"},
      {{0, 1, 2, 3, 4, 5}, "process set 0 has the same workers, ranks 0-5"},
      {{0, 2, 5}, "process set 1 has the same workers, ranks 0, 2 and 5"},
      {{0, 2}, ""},
      {{3}, ""},
      {{0, 1, 2, 3, 4}, ""},
  };
  for (const auto& [ranks, fault] : rows) {
    CHECK(sets.FindAddFault(ranks) == fault);
  }
}

TEST_CASE("process sets in a world of one have room for no other set") {
  CHECK(ProcessSets::OfSize(1).FindAddFault({0}) == "process set 0 has the same workers, rank 0");
}

TEST_CASE("process sets say why one cannot be removed") {
  const ProcessSets sets = Example();
  CHECK(sets.FindRemoveFault(0) == "process set 0, of all workers, cannot be removed");
  CHECK(sets.FindRemoveFault(3) == "process set 3 does not exist");
  CHECK(sets.FindRemoveFault(-7) == "process set -7 does not exist");
  CHECK(sets.FindRemoveFault(2).empty());
}

TEST_CASE("process sets say why a rank cannot use one") {
  const ProcessSets sets = Example();
  CHECK(sets.FindUseFault(1, 2).empty());
  CHECK(sets.FindUseFault(0, 5).empty());
  CHECK(sets.FindUseFault(1, 1) == "rank 1 is not in process set 1 of ranks 0, 2 and 5");
  CHECK(sets.FindUseFault(9, 1) == "process set 9 does not exist");
}

// ---------------------------------------------------------------- from world to world

TEST_CASE("process sets come back in the same world as they went") {
  const ProcessSets sets = Example();
  const auto again =
      ProcessSets::FromRecords(sets.ToRecords(), sets.next_id(), {10, 11, 12, 13, 14, 15});
  REQUIRE(again.ok());
  CHECK(again.value() == sets);
}

TEST_CASE("process sets follow their workers to new ranks") {
  const ProcessSets sets = Example();
  // 12 is rank 0 now, 15 rank 2, 10 rank 4; 13 is gone, and 20 is new.
  const auto later =
      ProcessSets::FromRecords(sets.ToRecords(), sets.next_id(), {12, 11, 15, 14, 10, 20});
  REQUIRE(later.ok());
  CHECK(later.value().Find(1)->ranks == Ranks{0, 2, 4});
  CHECK(later.value().Find(1)->incarnations == std::vector<uint64_t>{12, 15, 10});
  CHECK(later.value().Find(2)->ranks == Ranks{0, 1});
  CHECK(later.value().next_id() == 3);
}

TEST_CASE("process set that has lost a worker stays known and cannot be used") {
  const ProcessSets sets = Example();
  auto later = ProcessSets::FromRecords(sets.ToRecords(), 3, {11, 12, 13, 14, 15});  // 10 is gone.
  REQUIRE(later.ok());
  REQUIRE(later.value().Find(1) != nullptr);
  CHECK(later.value().Find(1)->broken());
  CHECK(later.value().Find(1)->IndexOf(0) == -1);
  CHECK(later.value().FindUseFault(1, 0) ==
        "process set 1 has lost worker(s), and cannot be used any more");
  CHECK_FALSE(later.value().Find(2)->broken());
  CHECK(later.value().FindUseFault(2, 0).empty());
  // The same ranks may make up a new set, and the broken one may be removed.
  CHECK(later.value().FindAddFault({1, 4}).empty());
  CHECK(later.value().FindRemoveFault(1).empty());
  // It is still broken in the world after, though as many workers are there again.
  const auto last = ProcessSets::FromRecords(
      later.value().ToRecords(), later.value().next_id(), {11, 12, 13, 14, 15, 16});
  REQUIRE(last.ok());
  CHECK(last.value().Find(1)->broken());
  CHECK(last.value().Find(1)->incarnations == std::vector<uint64_t>{10, 12, 15});
}

TEST_CASE("process set whose workers are now all there are is another set than 0") {
  ProcessSets sets({1, 2, 3});
  sets.Add({0, 1});
  const auto later = ProcessSets::FromRecords(sets.ToRecords(), 2, {2, 1});
  REQUIRE(later.ok());
  CHECK(later.value().Find(1)->ranks == Ranks{0, 1});
  CHECK(later.value().FindUseFault(1, 1).empty());
}

TEST_CASE("process sets refuse records that no honest coordinator names") {
  const std::vector<uint64_t> world = {1, 2, 3};
  const std::vector<SetRecord> good = {{2, {1, 3}}, {5, {2}}};
  CHECK(ProcessSets::FromRecords(good, 6, world).ok());
  CHECK(ProcessSets::FromRecords({}, 1, world).ok());
  CHECK_FALSE(ProcessSets::FromRecords(good, 5, world).ok());  // The next id is taken.
  CHECK_FALSE(ProcessSets::FromRecords({}, 0, world).ok());
  CHECK_FALSE(ProcessSets::FromRecords({}, -4, world).ok());
  CHECK_FALSE(ProcessSets::FromRecords({{0, {1}}}, 6, world).ok());
  CHECK_FALSE(ProcessSets::FromRecords({{-1, {1}}}, 6, world).ok());
  CHECK_FALSE(ProcessSets::FromRecords({{2, {}}}, 6, world).ok());
  CHECK_FALSE(ProcessSets::FromRecords({{2, {1, 1}}}, 6, world).ok());
  CHECK_FALSE(ProcessSets::FromRecords({{2, {1}}, {2, {3}}}, 6, world).ok());
  CHECK_FALSE(ProcessSets::FromRecords({{3, {1}}, {2, {3}}}, 6, world).ok());
  CHECK_FALSE(ProcessSets::FromRecords({}, 1, {}).ok());
  CHECK_FALSE(ProcessSets::FromRecords({}, 1, {4, 5, 4}).ok());
}

TEST_CASE("process sets know which of two ranks has seen more of the log") {
  ProcessSets early = ProcessSets::OfSize(4);
  early.Add({0, 1});
  ProcessSets added = early;
  added.Add({1, 2});
  ProcessSets removed = added;
  removed.Remove(1);
  const auto is_newer = [](const ProcessSets& a, const ProcessSets& b) {
    return IsNewer(a.ToRecords(), a.next_id(), b.ToRecords(), b.next_id());
  };
  CHECK(is_newer(added, early));
  CHECK_FALSE(is_newer(early, added));
  CHECK(is_newer(removed, added));
  CHECK_FALSE(is_newer(added, removed));
  CHECK_FALSE(is_newer(added, added));
  CHECK(is_newer(early, ProcessSets::OfSize(4)));  // Than a newcomer.
}

}  // namespace muster::worker
