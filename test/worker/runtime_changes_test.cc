// The runtime when worlds end: revocation, new worlds, newcomers, shutdown.

#include <catch2/catch.hpp>
#include <future>
#include <numeric>

#include "test/worker/runtime_fixture.h"

namespace muster::worker {

using namespace test;  // NOLINT(google-build-using-namespace): one fixture, two files.

TEST_CASE("runtime ends pending operations with WorkersLost when its generation is revoked",
          "[engine]") {
  FakeAgent agent;
  Workers workers = StartWorld(agent, 3);
  float value = 1;
  Handle pending = workers[0]->runtime().Submit(Sum(value));
  agent.Revoke(1, Incarnations(workers), "rank 2 on host-3 was lost");
  CHECK(MessageOf<WorkersLost>(pending) == "generation 1 was revoked: rank 2 on host-3 was lost");
  for (auto& worker : workers) {
    // Later calls find it revoked, too. The order may still be on its way to this worker.
    Handle late = worker->runtime().Submit(Vote(false));
    CHECK_THAT(MessageOf<WorkersLost>(late), Catch::Contains("rank 2 on host-3 was lost"));
  }
  // The next world has two members.
  std::unique_ptr<Worker> lost = std::move(workers[2]);
  workers.pop_back();
  agent.Form(2, Incarnations(workers));
  All(workers, [](EngineRuntime& runtime) {
    if (runtime.AwaitWorld() != Awaited::kWorld || runtime.place().generation != Generation{2} ||
        SumOfOnes(runtime) != 2) {
      throw std::runtime_error("no world of two");
    }
  });
  ShutdownAll(workers);
}

TEST_CASE("runtime frees an operation that others never join in the middle of its data",
          "[engine]") {
  FakeAgent agent;
  Workers workers = StartWorld(agent, 2);
  // Rank 1 is held up where it asks for the memory of its result, so that rank 0 sits inside.
  std::promise<void> release;
  std::shared_future<void> gate(release.get_future());
  std::promise<void> blocked;
  std::vector<float> data(1 << 20, 1.0f);
  std::vector<float> left(2 << 20);
  std::vector<float> right(2 << 20);
  Submission call;
  call.kind = OpKind::kAllgather;
  call.name = "big";
  call.in = {data.data(), DType::kF32, {1 << 20}};
  call.allocate = [&left](const Shape&, DType, const Device&) { return left.data(); };
  Handle stuck = workers[0]->runtime().Submit(call);
  call.allocate = [&right, &blocked, gate](const Shape&, DType, const Device&) {
    blocked.set_value();
    gate.wait();
    return right.data();
  };
  Handle behind = workers[1]->runtime().Submit(call);
  REQUIRE(blocked.get_future().wait_for(kPatience) == std::future_status::ready);
  const auto start = std::chrono::steady_clock::now();
  agent.Revoke(1, Incarnations(workers), "test");
  CHECK_THROWS_AS(stuck.wait(), WorkersLost);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(2));
  release.set_value();
  CHECK_THROWS_AS(behind.wait(), WorkersLost);
  agent.Form(2, Incarnations(workers));
  All(workers, [](EngineRuntime& runtime) {
    runtime.AwaitWorld();
    if (SumOfOnes(runtime) != 2) {
      throw std::runtime_error("no new world");
    }
  });
  ShutdownAll(workers);
}

// Memory that may still be written to is never handed back.
TEST_CASE("runtime ends the process if an operation does not let go of memory within 5 s",
          "[engine]") {
  FakeAgent agent;
  Workers workers = StartWorld(agent, 1);
  std::promise<void> release;
  std::shared_future<void> gate(release.get_future());
  std::promise<void> blocked;
  float value = 1;
  Submission call;
  call.kind = OpKind::kAllgather;
  call.name = "held";
  call.in = {&value, DType::kF32, {1}};
  call.allocate = [&value, &blocked, gate](const Shape&, DType, const Device&) {
    blocked.set_value();
    gate.wait();
    return &value;
  };
  Handle held = workers[0]->runtime().Submit(call);
  REQUIRE(blocked.get_future().wait_for(kPatience) == std::future_status::ready);
  const auto start = std::chrono::steady_clock::now();
  agent.Revoke(1, Incarnations(workers), "test");
  const auto [code, why] = workers[0]->AwaitEnd();
  CHECK(std::chrono::steady_clock::now() - start >= std::chrono::seconds(5));
  CHECK(code == 70);
  CHECK_THAT(why, Catch::Contains("could not be stopped within 5 s"));
  CHECK_FALSE(held.poll());
  release.set_value();
  CHECK_THROWS_AS(held.wait(), WorkersLost);
}

TEST_CASE("runtime follows the newest of many worlds", "[engine]") {
  FakeAgent agent;
  Workers workers = StartWorld(agent, 4);
  // Each order drops the one before where it stands; only the last one must form.
  std::vector<uint64_t> members = Incarnations(workers);
  for (uint64_t generation = 2; generation <= 20; ++generation) {
    std::rotate(members.begin(), members.begin() + 1, members.end());
    agent.Form(generation, members);
  }
  All(workers, [](EngineRuntime& runtime) {
    while (runtime.place().generation < Generation{20}) {
      runtime.AwaitWorld();
    }
    if (SumOfOnes(runtime) != 4) {
      throw std::runtime_error("a wrong sum");
    }
  });
  ShutdownAll(workers);
}

TEST_CASE("runtime reports a peer whose links break and waits for the verdict", "[engine]") {
  FakeAgent agent;
  Workers workers = StartWorld(agent, 3);
  for (const auto& worker : workers) {
    agent.Await(worker->incarnation(), Report::kFormed);
  }
  // Worker 3 hears of a revocation that the others have not heard of: its links close.
  agent.Revoke(1, {3}, "only here");
  const auto broken = agent.Await(1, Report::kBrokenPeers).broken_peers();
  CHECK(broken.generation() == 1);
  REQUIRE(broken.suspect_ranks_size() == 1);
  CHECK(broken.suspect_ranks(0) == 2);
  CHECK_FALSE(broken.stalled());
  float value = 1;
  Handle pending = workers[0]->runtime().Submit(Sum(value));
  Handle other = workers[1]->runtime().Submit(Vote(false));
  CHECK_FALSE(pending.poll());
  CHECK_FALSE(other.poll());
  agent.Form(2, Incarnations(workers), "links of rank 2 broke");
  CHECK_THAT(MessageOf<WorkersLost>(pending), Catch::Contains("links of rank 2 broke"));
  CHECK_THROWS_AS(other.wait(), WorkersLost);
  All(workers, [](EngineRuntime& runtime) {
    runtime.AwaitWorld();
    if (SumOfOnes(runtime) != 3) {
      throw std::runtime_error("no new world");
    }
  });
  ShutdownAll(workers);
}

TEST_CASE("runtime lets a newcomer start before it belongs to a world", "[engine]") {
  FakeAgent agent;
  Workers workers = StartWorld(agent, 2);
  agent.SetFirstStart(false);
  workers.push_back(std::make_unique<Worker>(agent, 3));
  Worker& newcomer = *workers.back();
  auto init = newcomer.Do([](EngineRuntime& runtime) { runtime.Init({}); });
  agent.Await(3, Report::kJoin);
  agent.Admit(3, 2, 3);
  REQUIRE(init.wait_for(kPatience) == std::future_status::ready);
  CHECK(newcomer.place().generation == Generation{0});
  CHECK(newcomer.place().rank == 2);
  CHECK(newcomer.place().size == 3);
  float value = 1;
  Handle early = newcomer.runtime().Submit(Sum(value));
  CHECK_THAT(MessageOf<InvalidCollective>(early), Catch::Contains("before its first sync"));

  newcomer.runtime().EnterElastic();
  agent.Await(3, Report::kWarm);
  agent.NotifyPending(1, {1, 2}, true);
  for (size_t i = 0; i < 2; ++i) {
    while (!workers[i]->runtime().PendingChange()) {
      std::this_thread::yield();
    }
    workers[i]->runtime().SetHeld(CommitId{1, 7});
    workers[i]->runtime().Leave();
    const auto left = agent.Await(i + 1, Report::kLeft).left();
    CHECK(left.generation() == 1);
    CHECK(left.held().sequence() == 7);
  }
  agent.Form(2, {1, 2, 3});
  All(workers, [](EngineRuntime& runtime) {
    runtime.AwaitWorld();
    if (runtime.place().size != 3 || SumOfOnes(runtime) != 3 || runtime.PendingChange()) {
      throw std::runtime_error("no world of three");
    }
  });
  const auto formed = agent.Await(1, Report::kFormed).formed();
  CHECK(formed.generation() == 2);
  CHECK(formed.held().sequence() == 7);
  CHECK_FALSE(agent.Await(3, Report::kFormed).formed().has_held());
  newcomer.runtime().ReportDone();
  ShutdownAll(workers);
}

TEST_CASE("runtime takes back a pending change that has vanished", "[engine]") {
  FakeAgent agent;
  Workers workers = StartWorld(agent, 1);
  EngineRuntime& runtime = workers[0]->runtime();
  agent.NotifyPending(7, {1}, true);  // Of a generation that is not at work.
  agent.NotifyPending(1, {1}, true);
  while (!runtime.PendingChange()) {
    std::this_thread::yield();
  }
  agent.NotifyPending(1, {1}, false);
  while (runtime.PendingChange()) {
    std::this_thread::yield();
  }
  v1::WorkerOrder drain;
  drain.mutable_draining();
  agent.Send(1, drain);
  while (!runtime.PendingChange()) {
    std::this_thread::yield();
  }
  ShutdownAll(workers);
}

TEST_CASE("runtime returns from waiting when it is released", "[engine]") {
  FakeAgent agent;
  Workers workers = StartWorld(agent, 2);
  workers[1]->runtime().Leave();
  auto waiting = workers[1]->Do([](EngineRuntime& runtime) {
    if (runtime.AwaitWorld() != Awaited::kReleased) {
      throw std::runtime_error("not released");
    }
  });
  agent.Release(2);
  REQUIRE(waiting.wait_for(kPatience) == std::future_status::ready);
  waiting.get();
  workers[1]->runtime().Shutdown();
  agent.Await(2, Report::kBye);
}

TEST_CASE("runtime says Done at shutdown if no elastic function was used", "[engine]") {
  FakeAgent agent;
  Workers workers = StartWorld(agent, 2);
  ShutdownAll(workers);
  for (const auto& worker : workers) {
    CHECK(agent.Await(worker->incarnation(), Report::kDone).done().generation() == 1);
    agent.Await(worker->incarnation(), Report::kBye);
    CHECK_FALSE(agent.HoldsMutex(worker->incarnation()));
  }
}

TEST_CASE("runtime does not say Done after a code, a loss, or an unfinished elastic function",
          "[engine]") {
  FakeAgent agent;
  const int why = GENERATE(0, 1, 2);
  Workers workers = StartWorld(agent, 1);
  EngineRuntime& runtime = workers[0]->runtime();
  if (why == 0) {
    runtime.ShutdownWith(3);
  } else if (why == 1) {
    agent.Revoke(1, {1}, "test");
    Handle lost = runtime.Submit(Vote(false));
    while (!lost.poll()) {
      std::this_thread::yield();
    }
    // The vote may have come before the order.
    for (;;) {
      Handle again = runtime.Submit(Vote(false));
      try {
        again.wait();
      } catch (const WorkersLost&) {
        break;
      }
    }
    runtime.Shutdown();
  } else {
    runtime.EnterElastic();
    runtime.Shutdown();
  }
  CHECK_FALSE(agent.Has(1, Report::kDone));
  agent.Await(1, Report::kBye);
}

TEST_CASE("runtime fails what needs a member that has finished with WorkersFinished", "[engine]") {
  FakeAgent agent;
  Workers workers = StartWorld(agent, 3);
  float value = 1;
  Handle pending = workers[0]->runtime().Submit(Sum(value));
  workers[2]->runtime().ReportDone();
  workers[2]->runtime().Shutdown();
  CHECK_THAT(MessageOf<WorkersFinished>(pending), Catch::Contains("rank 2 has finished"));
  float late_value = 1;
  Handle late = workers[1]->runtime().Submit(Sum(late_value, "late"));
  CHECK_THROWS_AS(late.wait(), WorkersFinished);
  CHECK_FALSE(agent.Has(1, Report::kBrokenPeers));
  CHECK_FALSE(agent.Has(2, Report::kBrokenPeers));
  workers.pop_back();
  ShutdownAll(workers);
}

TEST_CASE("runtime's rank 0 coordinates in shutdown until it is released", "[engine]") {
  FakeAgent agent;
  Workers workers = StartWorld(agent, 3);
  auto shutdown = workers[0]->Do([](EngineRuntime& runtime) { runtime.Shutdown(); });
  agent.Await(1, Report::kBye);
  // Rank 0 has finished, and still tells the others so.
  float value = 1;
  Handle needs_0 = workers[1]->runtime().Submit(Sum(value));
  CHECK_THROWS_AS(needs_0.wait(), WorkersFinished);
  CHECK(shutdown.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
  agent.Release(1);
  REQUIRE(shutdown.wait_for(kPatience) == std::future_status::ready);
  shutdown.get();
}

TEST_CASE("runtime's rank 0 leaves by itself when all others have finished", "[engine]") {
  FakeAgent agent;
  Workers workers = StartWorld(agent, 3);
  auto shutdown = workers[0]->Do([](EngineRuntime& runtime) { runtime.Shutdown(); });
  workers[1]->runtime().Shutdown();
  CHECK(shutdown.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
  workers[2]->runtime().Shutdown();
  REQUIRE(shutdown.wait_for(kPatience) == std::future_status::ready);
  shutdown.get();
}

TEST_CASE("runtime in shutdown leaves when its generation is revoked", "[engine]") {
  FakeAgent agent;
  Workers workers = StartWorld(agent, 2);
  auto shutdown = workers[0]->Do([](EngineRuntime& runtime) { runtime.Shutdown(); });
  agent.Await(1, Report::kBye);
  agent.Revoke(1, {1}, "rank 1 was lost");
  REQUIRE(shutdown.wait_for(kPatience) == std::future_status::ready);
  shutdown.get();
}

TEST_CASE("runtime ends the process when its agent is gone or refuses it", "[engine]") {
  FakeAgent agent;
  Workers workers = StartWorld(agent, 2);
  agent.Break(1);
  const auto gone = workers[0]->AwaitEnd();
  CHECK(gone.first == 70);
  CHECK_THAT(gone.second, Catch::Contains("agent"));
  v1::WorkerOrder refuse;
  refuse.mutable_refused()->set_reason("it was replaced");
  agent.Send(2, refuse);
  const auto refused = workers[1]->AwaitEnd();
  CHECK(refused.first == 70);
  CHECK_THAT(refused.second, Catch::Contains("it was replaced"));
}

TEST_CASE("runtime ticks its page and holds its mutex", "[engine]") {
  FakeAgent agent;
  Workers workers = StartWorld(agent, 1);
  CHECK(agent.HoldsMutex(1));
  const uint64_t before = agent.Ticks(1);
  while (agent.Ticks(1) < before + 3) {
    std::this_thread::yield();
  }
  ShutdownAll(workers);
}

TEST_CASE("runtime reports a stall to the launcher past the shutdown time", "[engine]") {
  FakeAgent agent;
  agent.SetStallTimes(50, 100);
  Workers workers = StartWorld(agent, 3);
  float value = 1;
  Handle pending = workers[1]->runtime().Submit(Sum(value, "loss"));
  const auto broken = agent.Await(1, Report::kBrokenPeers).broken_peers();
  CHECK(broken.stalled());
  CHECK(broken.suspect_ranks_size() == 2);
  CHECK_THAT(broken.evidence(), Catch::Contains("'loss'"));
  agent.Revoke(1, Incarnations(workers), "stalled");
  CHECK_THROWS_AS(pending.wait(), WorkersLost);
}

TEST_CASE("runtime that abandons a sound generation asks the launcher for the next", "[engine]") {
  FakeAgent agent;
  Workers workers = StartWorld(agent, 2);
  auto waiting = workers[1]->Do([](EngineRuntime& runtime) { runtime.AwaitWorld(); });
  const auto broken = agent.Await(2, Report::kBrokenPeers).broken_peers();
  REQUIRE(broken.suspect_ranks_size() == 1);
  CHECK(broken.suspect_ranks(0) == 1);
  agent.Form(2, Incarnations(workers));
  REQUIRE(waiting.wait_for(kPatience) == std::future_status::ready);
  CHECK(workers[1]->place().generation == Generation{2});
  workers[0]->runtime().AwaitWorld();
  ShutdownAll(workers);
}

TEST_CASE("runtime reports what elastic::run tells it", "[engine]") {
  FakeAgent agent;
  Workers workers = StartWorld(agent, 1);
  EngineRuntime& runtime = workers[0]->runtime();
  runtime.EnterElastic();
  runtime.ReportSynced(CommitId{1, 3});
  const auto synced = agent.Await(1, Report::kSynced).synced();
  CHECK(synced.generation() == 1);
  CHECK(synced.commit().sequence() == 3);
  runtime.ReportDone();
  agent.Await(1, Report::kDone);
  runtime.EnterElastic();
  CHECK(agent.Await(1, Report::kRunning).running().generation() == 1);
}

}  // namespace muster::worker
