#include "bench/recovery.h"

#include <catch2/catch.hpp>

namespace muster::bench {
namespace {

constexpr int64_t kKill = 1000;

// Workers 1 to 3, of whom 2 is lost from generation 4.
Recovery Example() {
  return Recovery({.t_ns = kKill, .generation = 4, .victim = 2, .survivors = {1, 3}});
}

TraceEvent Of(uint64_t worker, const std::string& kind, int64_t after_kill, uint64_t generation) {
  return {
      .kind = kind, .t_ns = kKill + after_kill, .generation = generation, .incarnation = worker};
}

void Pass(Recovery& recovery, uint64_t worker, std::array<int64_t, kMilestones> at) {
  CHECK(recovery.Add(Of(worker, "lost", at[0], 4)).ok());
  CHECK(recovery.Add(Of(worker, "restore", at[1], 4)).ok());
  CHECK(recovery.Add(Of(worker, "world", at[2], 5)).ok());
  CHECK(recovery.Add(Of(worker, "sync", at[3], 5)).ok());
  CHECK(recovery.Add(Of(worker, "step", at[4], 5)).ok());
}

}  // namespace

TEST_CASE("a recovery takes as long as its last survivor, whose phases add up to it") {
  Recovery recovery = Example();
  Pass(recovery, 3, {10, 12, 30, 41, 50});
  CHECK_FALSE(recovery.stepped());
  CHECK(recovery.missing() == std::set<uint64_t>{1});
  Pass(recovery, 1, {5, 6, 8, 39, 49});
  REQUIRE(recovery.stepped());
  CHECK(recovery.to_step_ns() == 50);
  CHECK(recovery.PhasesNs() == std::array<int64_t, kMilestones>{10, 2, 18, 11, 9});
  CHECK(recovery.generations() == 1);
}

TEST_CASE("steps of the lost world, before or after the kill, are none of a recovery") {
  Recovery recovery = Example();
  CHECK(recovery.Add(Of(1, "step", -5, 4)).ok());
  CHECK(recovery.Add(Of(1, "step", 5, 4)).ok());
  CHECK(recovery.missing().contains(1));
  CHECK(recovery.Add(Of(1, "step", 9, 5)).ok());
  CHECK_FALSE(recovery.missing().contains(1));
  // A newcomer's step is not waited for.
  CHECK(recovery.Add(Of(7, "step", 9, 5)).ok());
  CHECK(recovery.missing() == std::set<uint64_t>{3});
}

TEST_CASE("when a second world is needed, the first loss and the way into the last world count") {
  Recovery recovery = Example();
  Pass(recovery, 1, {1, 2, 3, 4, 5});
  CHECK(recovery.Add(Of(3, "lost", 10, 4)).ok());
  CHECK(recovery.Add(Of(3, "restore", 11, 4)).ok());
  CHECK(recovery.Add(Of(3, "world", 12, 5)).ok());
  CHECK(recovery.Add(Of(3, "lost", 20, 5)).ok());
  CHECK(recovery.Add(Of(3, "restore", 21, 5)).ok());
  CHECK(recovery.Add(Of(3, "world", 25, 6)).ok());
  CHECK(recovery.Add(Of(3, "sync", 26, 6)).ok());
  CHECK(recovery.Add(Of(3, "step", 29, 6)).ok());
  CHECK(recovery.PhasesNs() == std::array<int64_t, kMilestones>{10, 11, 4, 1, 3});
  CHECK(recovery.generations() == 2);
}

TEST_CASE("a milestone that was not passed takes no time") {
  Recovery recovery({.t_ns = kKill, .generation = 4, .victim = 2, .survivors = {1}});
  CHECK(recovery.Add(Of(1, "lost", 10, 4)).ok());
  CHECK(recovery.Add(Of(1, "world", 12, 5)).ok());
  CHECK(recovery.Add(Of(1, "sync", 13, 5)).ok());
  CHECK(recovery.Add(Of(1, "step", 20, 5)).ok());
  CHECK(recovery.PhasesNs() == std::array<int64_t, kMilestones>{10, 0, 2, 1, 7});
}

TEST_CASE("the driver's first order of a world after the kill counts") {
  Recovery recovery = Example();
  CHECK(recovery.Add(Of(0, "form", -1, 4)).ok());
  CHECK(recovery.to_form_ns() == 0);
  CHECK(recovery.Add(Of(0, "form", 3, 5)).ok());
  CHECK(recovery.Add(Of(0, "form", 90, 6)).ok());
  CHECK(recovery.to_form_ns() == 3);
}

TEST_CASE("the victim's end by SIGKILL is expected, every other end is an error") {
  Recovery recovery = Example();
  TraceEvent end = Of(2, "reaped", 4, 0);
  end.signal = 9;
  CHECK(recovery.Add(end).ok());
  CHECK(recovery.reaped());

  end.incarnation = 3;
  CHECK(recovery.Add(end).message() ==
        "worker 3 ended by signal 9; worker 2 was to end by signal 9");
  // One that ended earlier, whose line was read late, is the business of the loss before.
  end.t_ns = kKill - 1;
  CHECK(recovery.Add(end).ok());

  Recovery exited = Example();
  CHECK(exited.Add(Of(2, "reaped", 4, 0)).message() ==
        "worker 2 ended by itself; worker 2 was to end by signal 9");
  CHECK_FALSE(exited.reaped());
}

TEST_CASE("a job that finishes does not recover") {
  Recovery recovery = Example();
  TraceEvent finish = Of(0, "finish", 5, 0);
  finish.cause = "state lost";
  CHECK(recovery.Add(finish).message() == "the job ended: state lost");
}

}  // namespace muster::bench
