#include "launcher/core/slot_blame.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <vector>

namespace muster::launcher {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

const SlotId kSlot{HostId{"a"}, 1};
const SlotId kSibling{HostId{"a"}, 0};
const SlotId kElsewhere{HostId{"b"}, 1};
const Instant kStart{std::chrono::hours(1)};
const CooldownRange kRange{seconds(3), seconds(12)};

int64_t SecondsLeft(const SlotBlame& blame, const SlotId& slot, Instant now) {
  const auto from = blame.UsableFrom(slot);
  REQUIRE(from.has_value());
  return *from <= now ? 0 : std::chrono::duration_cast<seconds>(*from - now).count();
}

TEST_CASE("a clean slot is usable") {
  const SlotBlame blame(std::nullopt, false);
  CHECK(blame.Usable(kSlot, kStart));
  CHECK_FALSE(blame.SetAsideForGood(kSlot));
  CHECK(blame.FailuresOf(kSlot) == 0);
  CHECK_FALSE(blame.HasFailed(kSlot));
}

TEST_CASE("a failure costs the slot one second and its sibling nothing") {
  SlotBlame blame(std::nullopt, false);
  blame.WorkerFailed(kSlot, kStart);
  CHECK_FALSE(blame.Usable(kSlot, kStart));
  CHECK_FALSE(blame.Usable(kSlot, kStart + seconds(1) - Duration(1)));
  CHECK(blame.Usable(kSlot, kStart + seconds(1)));
  CHECK(blame.Usable(kSibling, kStart));
  CHECK(blame.Usable(kElsewhere, kStart));
  CHECK(blame.FailuresOf(kSlot) == 1);
  CHECK(blame.HasFailed(kSlot));
  CHECK_FALSE(blame.HasFailed(kSibling));
}

TEST_CASE("the back-off doubles from one second to sixty") {
  SlotBlame blame(std::nullopt, false);
  Instant now = kStart;
  std::vector<int64_t> waits;
  for (int i = 0; i < 8; ++i) {
    // Three minutes apart: four failures in any ten minutes, and no good ten minutes.
    now += minutes(3);
    blame.WorkerFailed(kSlot, now);
    waits.push_back(SecondsLeft(blame, kSlot, now));
  }
  CHECK(waits == std::vector<int64_t>{1, 2, 4, 8, 16, 32, 60, 60});
}

TEST_CASE("the back-off is halved for every ten good minutes") {
  SlotBlame blame(std::nullopt, false);
  Instant now = kStart;
  for (int i = 0; i < 4; ++i) {
    blame.WorkerFailed(kSlot, now += minutes(3));
  }
  CHECK(SecondsLeft(blame, kSlot, now) == 8);
  SECTION("after 9 minutes it has not sunk yet") {
    blame.WorkerFailed(kSlot, now += minutes(9));
    CHECK(SecondsLeft(blame, kSlot, now) == 16);
  }
  SECTION("after 10 minutes it climbs from the half") {
    blame.WorkerFailed(kSlot, now += minutes(10));
    CHECK(SecondsLeft(blame, kSlot, now) == 8);
  }
  SECTION("after 20 minutes from the quarter") {
    blame.WorkerFailed(kSlot, now += minutes(20));
    CHECK(SecondsLeft(blame, kSlot, now) == 4);
  }
  SECTION("after hours from the bottom") {
    blame.WorkerFailed(kSlot, now += minutes(600));
    CHECK(SecondsLeft(blame, kSlot, now) == 1);
  }
}

TEST_CASE("ten good minutes bring even the longest back-off down") {
  SlotBlame blame(std::nullopt, false);
  Instant now = kStart;
  for (int i = 0; i < 20; ++i) {
    blame.WorkerFailed(kSlot, now += minutes(3));
  }
  CHECK(SecondsLeft(blame, kSlot, now) == 60);
  blame.WorkerFailed(kSlot, now += minutes(20));
  CHECK(SecondsLeft(blame, kSlot, now) == 32);
}

TEST_CASE("five failures in ten minutes set a slot aside for good") {
  SlotBlame blame(std::nullopt, false);
  Instant now = kStart;
  for (int i = 0; i < 4; ++i) {
    blame.WorkerFailed(kSlot, now += minutes(2));
    CHECK_FALSE(blame.SetAsideForGood(kSlot));
  }
  blame.WorkerFailed(kSlot, now += minutes(2) - seconds(1));
  CHECK(blame.SetAsideForGood(kSlot));
  CHECK_FALSE(blame.Usable(kSlot, now + minutes(10'000)));
  CHECK_FALSE(blame.SetAsideForGood(kSibling));
}

TEST_CASE("five failures in more than ten minutes do not") {
  SlotBlame blame(std::nullopt, false);
  Instant now = kStart;
  for (int i = 0; i < 50; ++i) {
    blame.WorkerFailed(kSlot, now += seconds(151));
    CHECK_FALSE(blame.SetAsideForGood(kSlot));
  }
}

TEST_CASE("a cool-down range doubles from its low end and stops at its high end") {
  SlotBlame blame(kRange, false);
  Instant now = kStart;
  std::vector<int64_t> waits;
  for (int i = 0; i < 5; ++i) {
    blame.WorkerFailed(kSlot, now += seconds(20));
    waits.push_back(SecondsLeft(blame, kSlot, now));
  }
  CHECK(waits == std::vector<int64_t>{3, 6, 12, 12, 12});
}

TEST_CASE("a cool-down range that is no power of two ends at its high end") {
  SlotBlame blame(CooldownRange{seconds(10), seconds(25)}, false);
  Instant now = kStart;
  std::vector<int64_t> waits;
  for (int i = 0; i < 4; ++i) {
    blame.WorkerFailed(kSlot, now += seconds(30));
    waits.push_back(SecondsLeft(blame, kSlot, now));
  }
  CHECK(waits == std::vector<int64_t>{10, 20, 25, 25});
}

TEST_CASE("a cool-down range upside down gives its high end") {
  SlotBlame blame(CooldownRange{seconds(10), seconds(5)}, false);
  blame.WorkerFailed(kSlot, kStart);
  CHECK(SecondsLeft(blame, kSlot, kStart) == 5);
}

TEST_CASE("with a cool-down range nothing is ever set aside for good") {
  SlotBlame blame(kRange, GENERATE(false, true));
  Instant now = kStart;
  for (int i = 0; i < 100; ++i) {
    blame.WorkerFailed(kSlot, now += seconds(13));
    CHECK_FALSE(blame.SetAsideForGood(kSlot));
  }
}

TEST_CASE("a lost agent costs all slots of its host, and no other host") {
  SlotBlame blame(std::nullopt, false);
  blame.HostFailed(HostId{"a"}, kStart);
  CHECK(SecondsLeft(blame, kSlot, kStart) == 1);
  CHECK(SecondsLeft(blame, kSibling, kStart) == 1);
  CHECK(blame.Usable(kElsewhere, kStart));
  CHECK(blame.FailuresOf(kSlot) == 0);
  CHECK(blame.HasFailed(kSlot));
}

TEST_CASE("five lost agents in ten minutes set the host aside for good") {
  SlotBlame blame(std::nullopt, false);
  Instant now = kStart;
  for (int i = 0; i < 5; ++i) {
    blame.HostFailed(HostId{"a"}, now += minutes(1));
  }
  CHECK(blame.SetAsideForGood(kSlot));
  CHECK(blame.SetAsideForGood(kSibling));
  CHECK_FALSE(blame.SetAsideForGood(kElsewhere));
}

TEST_CASE("the longer back-off of slot and host counts") {
  SlotBlame blame(std::nullopt, false);
  blame.WorkerFailed(kSlot, kStart);
  blame.WorkerFailed(kSlot, kStart);
  blame.HostFailed(HostId{"a"}, kStart);
  CHECK(SecondsLeft(blame, kSlot, kStart) == 2);
  CHECK(SecondsLeft(blame, kSibling, kStart) == 1);
}

TEST_CASE("an unreachable host is tried again after at most five seconds, for ever") {
  SlotBlame blame(std::nullopt, false);
  Instant now = kStart;
  std::vector<int64_t> waits;
  for (int i = 0; i < 30; ++i) {
    blame.HostUnreachable(HostId{"a"}, now += seconds(6));
    waits.push_back(SecondsLeft(blame, kSlot, now));
  }
  waits.resize(5);
  CHECK(waits == std::vector<int64_t>{1, 2, 4, 5, 5});
  CHECK_FALSE(blame.SetAsideForGood(kSlot));
  CHECK(blame.HasFailed(kSlot));
}

TEST_CASE("a host that has been reached starts with a clean sheet") {
  SlotBlame blame(std::nullopt, false);
  blame.HostUnreachable(HostId{"a"}, kStart);
  blame.HostUnreachable(HostId{"a"}, kStart);
  blame.HostReached(HostId{"a"});
  CHECK(blame.Usable(kSlot, kStart));
  blame.HostUnreachable(HostId{"a"}, kStart);
  CHECK(SecondsLeft(blame, kSlot, kStart) == 1);
}

TEST_CASE("being reached does not forgive failures") {
  SlotBlame blame(std::nullopt, false);
  blame.HostFailed(HostId{"a"}, kStart);
  blame.HostReached(HostId{"a"});
  CHECK(SecondsLeft(blame, kSlot, kStart) == 1);
}

TEST_CASE("with --blame host the first failure sets the host aside for good") {
  SlotBlame blame(std::nullopt, true);
  blame.WorkerFailed(kSlot, kStart);
  CHECK(blame.SetAsideForGood(kSlot));
  CHECK(blame.SetAsideForGood(kSibling));
  CHECK_FALSE(blame.SetAsideForGood(kElsewhere));
  CHECK(blame.FailuresOf(kSlot) == 1);
  CHECK(blame.FailuresOf(kSibling) == 0);
}

TEST_CASE("with --blame host and a range the host cools down as one") {
  SlotBlame blame(kRange, true);
  blame.WorkerFailed(kSlot, kStart);
  CHECK(SecondsLeft(blame, kSibling, kStart) == 3);
  // A sibling that falls in the same moment is the same failure of the host.
  blame.WorkerFailed(kSibling, kStart + seconds(1));
  CHECK(SecondsLeft(blame, kSibling, kStart) == 3);
  blame.WorkerFailed(kSibling, kStart + seconds(4));
  CHECK(SecondsLeft(blame, kSlot, kStart + seconds(4)) == 6);
}

}  // namespace
}  // namespace muster::launcher
