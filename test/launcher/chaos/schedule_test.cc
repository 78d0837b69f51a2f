#include "launcher/chaos/schedule.h"

#include <catch2/catch.hpp>
#include <map>

namespace muster::launcher {
namespace {

using std::chrono::seconds;

TEST_CASE("a schedule is the same for the same seed, and another one for another") {
  Schedule first(7, seconds(2));
  Schedule again(7, seconds(2));
  Schedule other(8, seconds(2));
  int same = 0;
  for (int i = 0; i < 100; ++i) {
    const Draw a = first.Next();
    const Draw b = again.Next();
    CHECK(a.at == b.at);
    CHECK(a.kind == b.kind);
    CHECK(a.victim == b.victim);
    CHECK(a.share == b.share);
    same += a.kind == other.Next().kind ? 1 : 0;
  }
  CHECK(same == 0);
}

TEST_CASE("a schedule keeps its mean, and is never quiet for longer than some means") {
  constexpr int kEvents = 20'000;
  Schedule schedule(1, seconds(2));
  Duration last{};
  Duration longest{};
  double shares = 0;
  for (int i = 0; i < kEvents; ++i) {
    const Draw draw = schedule.Next();
    REQUIRE(draw.at >= last);
    longest = std::max(longest, draw.at - last);
    last = draw.at;
    REQUIRE(draw.share >= 0);
    REQUIRE(draw.share < 1);
    shares += draw.share;
  }
  CHECK(last / kEvents > std::chrono::milliseconds(1950));
  CHECK(last / kEvents < std::chrono::milliseconds(2050));
  CHECK(longest <= std::chrono::milliseconds(8200));
  CHECK(longest > seconds(7));
  CHECK(shares / kEvents == Approx(0.5).margin(0.01));
}

TEST_CASE("kinds are picked by their weight") {
  const std::vector<ChaosKind> kinds{{"kill", 3}, {"cut", 2}, {"pause", 1}};
  std::map<int, int> picked;
  for (uint64_t draw = 0; draw < 600; ++draw) {
    ++picked[PickKind(kinds, draw, true)];
  }
  CHECK(picked == std::map<int, int>{{0, 300}, {1, 200}, {2, 100}});
}

TEST_CASE("while a hook is under way only built-in kinds are picked") {
  const std::vector<ChaosKind> kinds{{"cut", 5}, {"kill", 3}, {"slow", 9}, {"pause", 1}};
  std::map<int, int> picked;
  for (uint64_t draw = 0; draw < 400; ++draw) {
    ++picked[PickKind(kinds, draw, false)];
  }
  CHECK(picked == std::map<int, int>{{1, 300}, {3, 100}});
  CHECK(PickKind({{"cut", 1}}, 5, false) == -1);
  CHECK(PickKind({{"cut", 1}}, 5, true) == 0);
  CHECK(PickKind({}, 5, true) == -1);
}

}  // namespace
}  // namespace muster::launcher
