#include "worker/collective/slot_exchange.h"

#include <catch2/catch.hpp>

#include "test/worker/collective/shm_world.h"

namespace muster::worker {
namespace {

/// Three members, driven by one thread: nothing here waits.
struct Trio {
  std::shared_ptr<Segment> segment = MakeSegment(3);
  SlotExchange a{segment, WorldRanks(3), 0};
  SlotExchange b{segment, WorldRanks(3), 1};
  SlotExchange c{segment, WorldRanks(3), 2};
};

void Begin(SlotExchange& exchange, const std::vector<int>& members, int self, uint64_t number) {
  const Group group = GroupOf(members, self);
  exchange.Begin({group, number, In(kBrief)});
}

TEST_CASE("slot exchange shows a mark from when it is published") {
  Trio trio;
  const uint64_t number =
      GENERATE(uint64_t{0}, uint64_t{1}, uint64_t{1} << 40, (uint64_t{1} << 63) - 1);
  Begin(trio.a, {0, 1, 2}, 0, number);
  CHECK_FALSE(trio.a.Has(Mark::kGiven, 1, 1));
  Begin(trio.b, {0, 1, 2}, 1, number);
  CHECK_FALSE(trio.a.Has(Mark::kGiven, 1, 1));
  trio.b.Publish(Mark::kGiven, 2, Wake::kLast);
  CHECK(trio.a.Has(Mark::kGiven, 1, 2));
  CHECK_FALSE(trio.a.Has(Mark::kGiven, 1, 3));
  CHECK_FALSE(trio.a.Has(Mark::kTaken, 1, 1));
  CHECK_FALSE(trio.a.AllHave(Mark::kGiven, 1));
  CHECK(trio.a.Lacking(Mark::kGiven, 1) == std::vector<int>{9});
}

TEST_CASE("slot exchange takes a member of a later operation as past all earlier ones") {
  Trio trio;
  Begin(trio.a, {0, 1}, 0, 4);
  Begin(trio.b, {0, 1}, 1, 4);
  trio.b.Publish(Mark::kGiven, 1, Wake::kLast);
  for (const uint64_t number : {6, 9, 10}) {  // Of other groups, which `a` is not in.
    Begin(trio.b, {1, 2}, 1, number);
    CHECK(trio.a.Has(Mark::kGiven, 1, 100));
    CHECK(trio.a.Has(Mark::kTaken, 1, 100));
  }
  Begin(trio.a, {0, 1}, 0, 12);
  CHECK_FALSE(trio.a.Has(Mark::kGiven, 1, 1));
}

TEST_CASE("slot exchange keeps a slot until all who may read it have taken it") {
  Trio trio;
  Begin(trio.a, {0, 1, 2}, 0, 8);
  CHECK(trio.a.SlotFree(0));
  trio.a.LendToAll(0);
  CHECK_FALSE(trio.a.SlotFree(0));
  CHECK_FALSE(trio.a.SlotFree(SlotExchange::kSlotCount));  // The same memory.
  CHECK(trio.a.SlotFree(1));
  CHECK(trio.a.Holding(0) == std::vector<int>{7, 9});
  Begin(trio.b, {0, 1, 2}, 1, 8);
  trio.b.Publish(Mark::kTaken, 1, Wake::kLast);
  CHECK(trio.a.Holding(0) == std::vector<int>{9});
  // In another operation without the third member, the slot still waits for it.
  Begin(trio.a, {0, 1}, 0, 8 + SlotExchange::kSlotCount);
  CHECK_FALSE(trio.a.SlotFree(0));
  Begin(trio.c, {0, 1, 2}, 2, 8);
  trio.c.Publish(Mark::kTaken, 1, Wake::kLast);
  CHECK(trio.a.SlotFree(0));
  CHECK(trio.a.Holding(0).empty());
}

TEST_CASE("slot exchange gives the deadline's suspects and hears an abort") {
  Trio trio;
  Begin(trio.a, {0, 2}, 0, 1);
  const auto never = [] { return false; };
  const auto missing = [&] { return trio.a.Lacking(Mark::kGiven, 1); };
  const Status late = trio.a.WaitUntil(never, missing);
  CHECK(late.code() == StatusCode::kTimeout);
  CHECK(late.message().find("rank 9") != std::string::npos);
  CHECK(trio.a.suspects() == std::vector<int>{9});
  trio.a.Abort();
  CHECK(trio.a.WaitUntil([] { return true; }, missing).code() == StatusCode::kAborted);
}

}  // namespace
}  // namespace muster::worker
