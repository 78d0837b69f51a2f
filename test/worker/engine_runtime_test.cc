// The runtime from the outside: real engines, links and collectives in one process, under a fake
// agent that gives the orders.

#include "worker/engine_runtime.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <future>
#include <numeric>

#include "test/worker/runtime_fixture.h"

namespace muster::worker {

using namespace test;  // NOLINT(google-build-using-namespace): one fixture, two files.

TEST_CASE("runtime without an agent is a world of one with working collectives") {
  EngineRuntime runtime({});
  runtime.Init({});
  CHECK(runtime.place().rank == 0);
  CHECK(runtime.place().size == 1);
  CHECK(runtime.place().generation == Generation{1});
  CHECK(SumOfOnes(runtime) == 1);
  Handle vote = runtime.Submit(Vote(true));
  CHECK(runtime.Value(vote));
  runtime.Shutdown();
  CHECK_THROWS_AS(SumOfOnes(runtime), Error);
}

TEST_CASE("runtime does without shared memory where the agent has none to give", "[engine]") {
  FakeAgent agent;
  agent.ShareMemory(false);
  Workers workers = StartWorld(agent, 3);
  All(workers, [](EngineRuntime& runtime) {
    if (SumOfOnes(runtime) != 3) {
      throw std::runtime_error("a wrong sum");
    }
  });
  ShutdownAll(workers);
}

TEST_CASE("runtime without an agent forms its next world by itself") {
  EngineRuntime runtime({});
  runtime.Init({});
  CHECK(runtime.AwaitWorld() == Awaited::kWorld);
  CHECK(runtime.place().generation == Generation{2});
  CHECK(SumOfOnes(runtime) == 1);
}

TEST_CASE("runtime fails to start with an agent that does not answer") {
  RuntimeOptions options;
  options.engine.agent = AgentAccess{"/nowhere/at-all", "key", 1};
  EngineRuntime runtime(std::move(options));
  CHECK_THROWS_WITH(runtime.Init({}), Catch::Contains("/nowhere/at-all"));
}

TEST_CASE("runtime fails to start when the agent refuses its key") {
  FakeAgent agent;
  RuntimeOptions options = agent.OptionsFor(1);
  options.engine.agent->key = "wrong";
  EngineRuntime runtime(std::move(options));
  CHECK_THROWS_WITH(runtime.Init({}), Catch::Contains("the key is wrong"));
}

TEST_CASE("runtime forms a world and reduces over it", "[engine]") {
  FakeAgent agent;
  const size_t size = GENERATE(1, 2, 4);
  Workers workers = StartWorld(agent, size);
  std::atomic<uint64_t> ranks{0};
  All(workers, [&](EngineRuntime& runtime) {
    ranks |= uint64_t{1} << runtime.place().rank;
    for (int i = 0; i < 50; ++i) {
      if (SumOfOnes(runtime) != static_cast<float>(size)) {
        throw std::runtime_error("a wrong sum");
      }
    }
  });
  CHECK(ranks == (uint64_t{1} << size) - 1);
  for (const auto& worker : workers) {
    CHECK(agent.Await(worker->incarnation(), Report::kFormed).formed().generation() == 1);
    CHECK(worker->place().slot == static_cast<int>(worker->incarnation()));
    CHECK(worker->place().host == "host-" + std::to_string(worker->incarnation()));
  }
  ShutdownAll(workers);
}

TEST_CASE("runtime agrees on the OR of votes", "[engine]") {
  FakeAgent agent;
  Workers workers = StartWorld(agent, 3);
  All(workers, [](EngineRuntime& runtime) {
    Handle none = runtime.Submit(Vote(false, "none"));
    Handle one = runtime.Submit(Vote(runtime.place().rank == 2, "one"));
    if (runtime.Value(none) || !runtime.Value(one)) {
      throw std::runtime_error("a wrong agreement");
    }
  });
  ShutdownAll(workers);
}

TEST_CASE("runtime runs operations that ranks submit in different orders", "[engine]") {
  FakeAgent agent;
  Workers workers = StartWorld(agent, 4);
  All(workers, [](EngineRuntime& runtime) {
    std::vector<float> values(40, 1.0f);
    std::vector<size_t> order(values.size());
    std::iota(order.begin(), order.end(), 0);
    std::rotate(order.begin(), order.begin() + runtime.place().rank * 7, order.end());
    for (int round = 0; round < 3; ++round) {
      std::vector<Handle> handles;
      for (const size_t i : order) {
        handles.push_back(runtime.Submit(Sum(values[i], "t" + std::to_string(i))));
      }
      for (Handle& handle : handles) {
        handle.wait();
      }
    }
    if (std::any_of(values.begin(), values.end(), [](float v) { return v != 64; })) {
      throw std::runtime_error("a wrong sum");
    }
  });
  ShutdownAll(workers);
}

// The executor is kept busy until a callback and the role of the driver are both due on it. The
// user waits for the callback, the peer too, and only then for the operations under way.
TEST_CASE("runtime runs a callback before it drives operations that wait for it", "[engine]") {
  FakeAgent agent;
  Workers workers = StartWorld(agent, 2);
  std::promise<void> registered;
  std::promise<void> entered;
  std::promise<void> release;
  std::promise<void> called;
  std::shared_future<void> was_called = called.get_future().share();
  const auto await = [](const auto& future) {
    if (future.wait_for(kPatience) != std::future_status::ready) {
      throw std::runtime_error("a callback waits for operations that wait for it");
    }
  };
  std::vector<std::future<void>> futures;
  futures.push_back(workers[0]->Do([&](EngineRuntime& runtime) {
    std::vector<float> values(3, 1.0f);
    Handle busy = runtime.Submit(Sum(values[0], "busy"));
    busy.then([&](const std::exception_ptr&) {
      entered.set_value();
      release.get_future().wait_for(kPatience);
    });
    registered.set_value();
    busy.wait();
    await(entered.get_future());
    Handle one = runtime.Submit(Sum(values[1], "one"));
    one.then([&](const std::exception_ptr&) { called.set_value(); });
    Handle other = runtime.Submit(Sum(values[2], "other"));
    one.wait();
    release.set_value();
    await(was_called);
    other.wait();
  }));
  futures.push_back(workers[1]->Do([&](EngineRuntime& runtime) {
    std::vector<float> values(3, 1.0f);
    await(registered.get_future());
    runtime.Submit(Sum(values[0], "busy")).wait();
    runtime.Submit(Sum(values[1], "one")).wait();
    await(was_called);
    runtime.Submit(Sum(values[2], "other")).wait();
  }));
  Finish(futures);
  ShutdownAll(workers);
}

TEST_CASE("runtime gathers different first dimensions and broadcasts", "[engine]") {
  FakeAgent agent;
  Workers workers = StartWorld(agent, 3);
  All(workers, [](EngineRuntime& runtime) {
    const int rank = runtime.place().rank;
    std::vector<int32_t> mine(2 * static_cast<size_t>(rank), rank);
    std::vector<int32_t> all;
    Submission gather;
    gather.kind = OpKind::kAllgather;
    gather.in = {mine.data(), DType::kI32, {rank, 2}};
    Shape shape;
    gather.allocate = [&](const Shape& s, DType, const Device&) -> void* {
      shape = s;
      all.resize(static_cast<size_t>(s[0] * s[1]));
      return all.data();
    };
    runtime.Submit(gather).wait();
    if (shape != Shape{3, 2} || all != std::vector<int32_t>{1, 1, 2, 2, 2, 2}) {
      throw std::runtime_error("a wrong gather");
    }
    int64_t value = rank == 2 ? 42 : 0;
    Submission broadcast;
    broadcast.kind = OpKind::kBroadcast;
    broadcast.in = {&value, DType::kI64, {1}};
    broadcast.root = 2;
    runtime.Submit(broadcast).wait();
    if (value != 42) {
      throw std::runtime_error("a wrong broadcast");
    }
  });
  ShutdownAll(workers);
}

TEST_CASE("runtime gives a call that differs to every rank as InvalidCollective", "[engine]") {
  FakeAgent agent;
  Workers workers = StartWorld(agent, 2);
  All(workers, [](EngineRuntime& runtime) {
    std::vector<float> values(2, 1.0f);
    Submission call = Sum(values[0]);
    call.in.shape = call.out.shape = {1 + runtime.place().rank};
    Handle handle = runtime.Submit(call);
    try {
      handle.wait();
    } catch (const InvalidCollective& error) {
      if (std::string(error.what()).find("shape [1] on rank 0; shape [2] on rank 1") ==
          std::string::npos) {
        throw;
      }
      if (SumOfOnes(runtime) != 2) {
        throw std::runtime_error("the world did not stay");
      }
      return;
    }
    throw std::runtime_error("it succeeded");
  });
  ShutdownAll(workers);
}

TEST_CASE("runtime refuses a name that is in flight on this rank", "[engine]") {
  FakeAgent agent;
  Workers workers = StartWorld(agent, 2);
  float first = 1;
  float second = 1;
  Handle pending = workers[0]->runtime().Submit(Sum(first));
  Handle twice = workers[0]->runtime().Submit(Sum(second));
  CHECK_THAT(MessageOf<InvalidCollective>(twice), Catch::Contains("in flight"));
  CHECK_FALSE(pending.poll());
  CHECK(SumOfOnes(workers[1]->runtime()) == 2);
  pending.wait();
  CHECK(first == 2);
  ShutdownAll(workers);
}

}  // namespace muster::worker
