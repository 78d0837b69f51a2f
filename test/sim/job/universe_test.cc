#include "test/sim/job/universe.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/loop.h"

namespace muster::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct Fixture {
  Fixture() : universe(3), process(universe.NewProcess("one", "10.0.0.9", 0)) {}
  void RunFor(Duration time) {
    const Instant end = universe.now() + time;
    universe.At(time, [] {});
    universe.Run([&] { return universe.now() >= end; });
  }

  Universe universe;
  ProcessPtr process;  // Shared with the universe's queue.
  std::vector<std::string> happened;
};

TEST_CASE_METHOD(Fixture, "things happen in the order of their times") {
  universe.At(milliseconds(20), [&] { happened.push_back("b"); });
  universe.At(milliseconds(10), [&] { happened.push_back("a"); });
  universe.At(milliseconds(20), [&] { happened.push_back("c"); });
  RunFor(seconds(1));
  CHECK(happened == std::vector<std::string>{"a", "b", "c"});
}

TEST_CASE_METHOD(Fixture, "nothing happens in a process that has ended") {
  universe.In(process, milliseconds(10), [&] { happened.push_back("late"); });
  process->alive = false;
  RunFor(seconds(1));
  CHECK(happened.empty());
}

TEST_CASE_METHOD(Fixture, "what a stopped process has missed happens when it goes on") {
  universe.Stop(process);
  universe.In(process, milliseconds(10), [&] { happened.push_back("a"); });
  universe.In(process, milliseconds(20), [&] { happened.push_back("b"); });
  RunFor(seconds(1));
  CHECK(happened.empty());
  universe.Continue(process);
  RunFor(milliseconds(1));
  CHECK(happened == std::vector<std::string>{"a", "b"});
}

TEST_CASE_METHOD(Fixture, "a loop runs its timers and what was posted in its process") {
  std::unique_ptr<Loop> loop;
  universe.In(process, Duration::zero(), [&] {
    loop = std::make_unique<Loop>();
    loop->After(milliseconds(50), [&] {
      CHECK(universe.current() == process);
      happened.push_back("timer");
    });
    const Loop::TimerId cancelled =
        loop->After(milliseconds(60), [&] { happened.push_back("cancelled"); });
    loop->Cancel(cancelled);
    loop->Post([&] { happened.push_back("posted"); });
  });
  RunFor(seconds(1));
  CHECK(happened == std::vector<std::string>{"posted", "timer"});
}

TEST_CASE_METHOD(Fixture, "a clock that drifts is its process's own") {
  const ProcessPtr fast = universe.NewProcess("fast", "10.0.0.8", 10'000);
  Instant before;
  universe.In(fast, Duration::zero(), [&] { before = SteadyClock().Now(); });
  Duration passed{};
  universe.In(fast, seconds(100), [&] { passed = SteadyClock().Now() - before; });
  RunFor(seconds(101));
  CHECK(passed == seconds(101));
}

TEST_CASE_METHOD(Fixture, "the first broken rule counts, and ends the story") {
  universe.At(milliseconds(1), [&] { universe.Wrong("first"); });
  universe.At(milliseconds(2), [&] { universe.Wrong("second"); });
  universe.Run([] { return false; });
  CHECK(universe.wrong() == "first");
}

TEST_CASE_METHOD(Fixture, "a story without a future, or without an end, is wrong") {
  SECTION("nothing is left") {
    universe.Run([] { return false; });
    CHECK(universe.wrong() == "nothing is going to happen any more");
  }
  SECTION("time is up") {
    universe.SetEndOfTime(universe.now() + seconds(1));
    universe.At(seconds(2), [] {});
    universe.Run([] { return false; });
    CHECK(universe.wrong() == "the job does not come to an end");
  }
}

}  // namespace
}  // namespace muster::sim
