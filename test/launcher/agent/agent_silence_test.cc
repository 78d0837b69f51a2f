#include <poll.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>

#include "launcher/agent/agent.h"
#include "test/launcher/agent/agent_fixture.h"

namespace muster::launcher {
namespace {

using Case = v1::AgentReport;

size_t LossCount(FakeDriver& driver) {
  const std::vector<v1::AgentReport> reports = driver.reports();
  return static_cast<size_t>(
      std::count_if(reports.begin(), reports.end(), [](const v1::AgentReport& report) {
        return report.has_worker_lost();
      }));
}

// Stops a process for as long as `meanwhile` takes. False if this machine was too slow for the stop
// to be called a short one.
bool StopBriefly(pid_t pid, const std::function<void()>& meanwhile) {
  const auto start = std::chrono::steady_clock::now();
  ::kill(pid, SIGSTOP);
  meanwhile();
  ::kill(pid, SIGCONT);
  return std::chrono::steady_clock::now() - start < kFrozenAfter;
}

}  // namespace

TEST_CASE("agent reports a stopped worker frozen and kills it with its group") {
  AgentUnderTest agent({"nested"});
  const v1::WorkerJoined joined = agent.SpawnAndJoin(1);
  const auto start = std::chrono::steady_clock::now();
  ::kill(static_cast<pid_t>(joined.pid()), SIGSTOP);
  const v1::WorkerLost lost = agent.driver().Await(Case::kWorkerLost, 1).worker_lost();
  // Never earlier, however slow this machine is.
  CHECK(std::chrono::steady_clock::now() - start >= kFrozenAfter);
  CHECK(lost.kind() == v1::WorkerLost::KIND_FROZEN);
  CHECK(lost.evidence().find("stopped by a signal for 1.") != std::string::npos);
  const v1::WorkerExited exited = agent.driver().Await(Case::kWorkerExited, 1).worker_exited();
  CHECK(exited.signal() == SIGKILL);
  CHECK(agent.ProcessCount() == 0);
  CHECK(LossCount(agent.driver()) == 1);
}

TEST_CASE("agent reports a stopped worker behind a stopped shell frozen") {
  AgentUnderTest agent(
      AgentUnderTest::Command{{"/bin/sh", "-c", FakeWorkerPath() + " join; exit $?"}});
  agent.Spawn(1);
  const auto started = agent.driver().Await(Case::kWorkerStarted, 1).worker_started().pid();
  agent.driver().Await(Case::kWorkerJoined, 1);
  ::kill(-static_cast<pid_t>(started), SIGSTOP);
  CHECK(agent.driver().Await(Case::kWorkerLost, 1).worker_lost().kind() ==
        v1::WorkerLost::KIND_FROZEN);
  CHECK(agent.driver().Await(Case::kWorkerExited, 1).worker_exited().code() == 137);
}

TEST_CASE("agent lets a worker live that is stopped for a moment") {
  AgentUnderTest agent({"join"});
  const auto pid = static_cast<pid_t>(agent.SpawnAndJoin(1).pid());
  for (int i = 0; i < 4; ++i) {
    if (!StopBriefly(pid, [&] { REQUIRE(agent.driver().AwaitSummaries(1)); })) {
      WARN("this machine is too busy to stop a process for 200 ms");
      return;
    }
    REQUIRE(agent.driver().AwaitSummaries(2));
  }
  REQUIRE(agent.driver().AwaitSummaries(6));
  CHECK(LossCount(agent.driver()) == 0);
}

TEST_CASE("agent that was stopped itself counts a worker's stop anew") {
  AgentUnderTest agent({"join"});
  const auto pid = static_cast<pid_t>(agent.SpawnAndJoin(1).pid());
  ::kill(pid, SIGSTOP);
  REQUIRE(agent.driver().AwaitSummaries(2));  // The stop has been seen.
  ::kill(agent.proper(), SIGSTOP);
  ::poll(nullptr, 0, 1500);
  ::kill(agent.proper(), SIGCONT);
  REQUIRE(agent.driver().AwaitSummaries(1));
  ::kill(pid, SIGCONT);
  REQUIRE(agent.driver().AwaitSummaries(6));
  CHECK(LossCount(agent.driver()) == 0);
}

TEST_CASE("agent reports a worker silent whose engine sleeps for ever") {
  AgentUnderTest agent({"join"});
  agent.SpawnAndJoin(1);
  agent.Form(1, {1});
  agent.driver().Await(Case::kWorkerFormed, 1);
  const auto start = std::chrono::steady_clock::now();
  agent.Revoke(1, "mute");
  const v1::WorkerLost lost = agent.driver().Await(Case::kWorkerLost, 1).worker_lost();
  CHECK(std::chrono::steady_clock::now() - start >= kSilentAfter - std::chrono::milliseconds(200));
  CHECK(lost.kind() == v1::WorkerLost::KIND_SILENT);
  CHECK(lost.evidence().find("has not ticked for 5.") != std::string::npos);
  CHECK(agent.driver().Await(Case::kWorkerExited, 1).worker_exited().code() == 137);
}

// Whichever of its threads it is that runs.
TEST_CASE("agent counts a worker that runs without a tick as starved and lets it live") {
  AgentUnderTest agent({"join"});
  agent.SpawnAndJoin(1);
  agent.Form(1, {1});
  agent.driver().Await(Case::kWorkerFormed, 1);
  agent.Revoke(1, GENERATE("spin", "busy"));
  agent.driver().Await(
      [](const v1::AgentReport& report) { return report.summary().workers_starved() == 1; });
  REQUIRE(agent.driver().AwaitSummaries(30));
  CHECK(LossCount(agent.driver()) == 0);
}

TEST_CASE("agent raises its own limit of open files and gives workers the original") {
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  REQUIRE(before.rlim_max > 256);
  const rlimit low{256, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
  AgentUnderTest agent(
      AgentUnderTest::Command{{"/bin/sh", "-c", "echo $(ulimit -Sn) of $(ulimit -Hn)"}});
  CHECK(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  agent.Spawn(1);
  agent.driver().Await(Case::kWorkerExited, 1);
  const std::string hard =
      before.rlim_max == RLIM_INFINITY ? "unlimited" : std::to_string(before.rlim_max);
  CHECK(agent.driver().AwaitOutput("256 of " + hard + "\n"));
  rlimit of_agent{};
  REQUIRE(::prlimit(agent.proper(), RLIMIT_NOFILE, nullptr, &of_agent) == 0);
  CHECK(of_agent.rlim_cur == before.rlim_max);
}

TEST_CASE("agent tags what a worker prints before its first world") {
  AgentUnderTest agent({"print", "hello\\n"});
  agent.Spawn(1, 3);
  agent.driver().Await(Case::kWorkerExited, 1);
  REQUIRE(agent.driver().AwaitOutput("hello\n"));
  v1::AgentOrder order;
  order.mutable_spawn_worker()->set_incarnation(2);
  order.mutable_spawn_worker()->mutable_provisional()->set_rank(4);
  order.mutable_spawn_worker()->set_newcomer(true);
  agent.driver().Order(order);
  REQUIRE(agent.driver().AwaitOutput("hello\nhello\n"));
  const std::vector<v1::OutputChunk> chunks = agent.driver().chunks();
  REQUIRE(chunks.size() == 2);
  CHECK(chunks[0].rank() == 3);
  CHECK(chunks[1].rank() == -1);
}

}  // namespace muster::launcher
