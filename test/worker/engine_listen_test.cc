// Where a worker listens: by its environment, when it joins, and on order. All of 127.0.0.0/8 is
// here, so addresses differ without any being routable.

#include <catch2/catch.hpp>
#include <cstdlib>

#include "common/worker_page.h"
#include "test/worker/runtime_fixture.h"

namespace muster::worker {

using namespace test;  // NOLINT(google-build-using-namespace): one fixture, several files.

namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;
using Addresses = google::protobuf::RepeatedPtrField<v1::Address>;

/// A range of one port that was free a moment ago at 127.0.0.1 and is the holder's.
struct TakenPort {
  PrivateFd fd = ListenOnLoopback().value();
  uint16_t port = SplitAddress(LocalAddress(fd.get()).value()).value().port;
};

RuntimeOptions Options(FakeAgent& agent, uint64_t incarnation, ListenPlan plan) {
  RuntimeOptions options = agent.OptionsFor(incarnation);
  options.engine.listen = std::move(plan);
  return options;
}

std::vector<std::string> Hosts(const Addresses& addresses) {
  std::vector<std::string> hosts;
  for (const v1::Address& address : addresses) {
    hosts.push_back(SplitAddress(address.literal()).value().host);
  }
  return hosts;
}

v1::WorkerOrder ListenAt(const std::string& address) {
  v1::WorkerOrder order;
  order.mutable_listen()->mutable_address()->set_literal(address);
  return order;
}

}  // namespace

TEST_CASE("worker listens where its environment says, and tells so when it joins") {
  FakeAgent agent;
  EngineRuntime runtime(Options(agent, 1, {{"127.0.0.9", "127.0.0.8"}, {}}));
  auto init = std::async(std::launch::async, [&] { runtime.Init({}); });
  const auto join = agent.Await(1, Report::kJoin);
  CHECK(Hosts(join.join().addresses()) == std::vector<std::string>{"127.0.0.9", "127.0.0.8"});
  agent.Form(1, {1});
  init.get();
}

TEST_CASE("worker that cannot listen fails init with address and range") {
  FakeAgent agent;
  const TakenPort taken;
  EngineRuntime in_use(Options(agent, 1, {{}, {taken.port, taken.port}}));
  CHECK_THROWS_WITH(in_use.Init({}),
                    Contains("port " + std::to_string(taken.port) + " on 127.0.0.1 is in use"));
  EngineRuntime nowhere(Options(agent, 2, {{"198.51.100.1"}, {41000, 41001}}));
  CHECK_THROWS_WITH(nowhere.Init({}), Contains("198.51.100.1") && Contains("41000-41001"));
}

TEST_CASE("worker opens what Joined orders before it reports anything else") {
  FakeAgent agent;
  agent.SetFirstStart(false);
  agent.SetListen({"127.0.0.9:0", "127.0.0.1:0"});
  Worker worker(agent, 1);
  auto init = worker.Do([](EngineRuntime& runtime) {
    runtime.Init({});
    runtime.EnterElastic();
  });
  agent.Await(1, Report::kJoin);
  agent.Admit(1, 2, 3);
  const auto listening = agent.Await(1, Report::kListening);
  // Loopback is known, so it counts once.
  CHECK(Hosts(listening.listening().addresses()) ==
        std::vector<std::string>{"127.0.0.1", "127.0.0.9"});
  init.get();
  agent.Await(1, Report::kWarm);
}

TEST_CASE("worker that cannot listen where Joined orders fails init") {
  FakeAgent agent;
  agent.SetListen({"198.51.100.1:0"});
  Worker worker(agent, 1);
  auto init = worker.Do([](EngineRuntime& runtime) { runtime.Init({}); });
  CHECK_THROWS_WITH(init.get(), Contains("cannot listen at 198.51.100.1"));
}

TEST_CASE("worker listens at one more address on order, and the next world uses it") {
  FakeAgent agent;
  Workers workers = StartWorld(agent, 3);
  agent.Send(1, ListenAt("127.0.0.7:0"));
  const auto listening = agent.Await(1, Report::kListening);
  CHECK(Hosts(listening.listening().addresses()) ==
        std::vector<std::string>{"127.0.0.1", "127.0.0.7"});
  // The world at work does not notice.
  const auto sum = [](EngineRuntime& runtime) {
    if (SumOfOnes(runtime) != 3) {
      throw std::runtime_error("a wrong sum");
    }
  };
  All(workers, sum);
  agent.Revoke(1, Incarnations(workers), "test");
  agent.Form(2, Incarnations(workers));
  All(workers, [&sum](EngineRuntime& runtime) {
    runtime.AwaitWorld();
    sum(runtime);
  });
  ShutdownAll(workers);
}

TEST_CASE("worker that cannot listen where it is ordered to ends itself and says why") {
  FakeAgent agent;
  Workers workers = StartWorld(agent, 1);
  const char* order = GENERATE("198.51.100.1:0", "somewhere:0");
  agent.Send(1, ListenAt(order));
  const auto [code, why] = workers[0]->AwaitEnd();
  CHECK(code == 70);
  CHECK_THAT(why, Contains(std::string(order).substr(0, 8)));
}

TEST_CASE("worker's place to listen comes from the environment and is not left to its children") {
  ::setenv(kEnvAgentDirectory, "/nowhere", 1);
  ::setenv(kEnvIncarnation, "1", 1);
  ::setenv(kEnvWorkerKey, "key", 1);
  ::setenv(kEnvListen, "10.0.0.2:0", 1);
  ::setenv(kEnvPortRange, "41000", 1);
  const Result<RuntimeOptions> options = OptionsFromEnvironment();
  REQUIRE(options.ok());
  CHECK(options.value().engine.listen.hosts == std::vector<std::string>{"10.0.0.2"});
  CHECK(options.value().engine.listen.ports == PortRange{41000, 41000});
  CHECK(std::getenv(kEnvListen) == nullptr);
  ::setenv(kEnvListen, "host:0", 1);
  CHECK_THAT(OptionsFromEnvironment().status().message(), StartsWith("MUSTER_LISTEN=host:0: "));
  for (const char* name : {kEnvAgentDirectory, kEnvIncarnation, kEnvListen, kEnvPortRange}) {
    ::unsetenv(name);
  }
}

TEST_CASE("worker without an agent listens nowhere, whatever the environment says") {
  ::setenv(kEnvListen, "host:0", 1);
  CHECK(OptionsFromEnvironment().ok());
  ::unsetenv(kEnvListen);
}

}  // namespace muster::worker
