#include "launcher/agent/reaper.h"

#include <signal.h>

#include <catch2/catch.hpp>

#include "test/launcher/agent/agent_fixture.h"

namespace muster::launcher {
namespace {

// Two workers, each with children that ignore SIGTERM, two of them in sessions of their own.
void StartStubbornWorkers(AgentUnderTest& agent) {
  agent.SpawnAndJoin(1);
  agent.SpawnAndJoin(2);
  REQUIRE(agent.ProcessCount() == 8);
}

}  // namespace

TEST_CASE("reaper kills everything when the agent proper is killed") {
  AgentUnderTest agent({"nested"});
  StartStubbornWorkers(agent);
  ::kill(agent.proper(), SIGKILL);
  CHECK(agent.AwaitNoProcess());
  CHECK(agent.AwaitExit() == 137);
  CHECK(agent.DirectoryCount() == 0);
}

TEST_CASE("agent proper kills everything when the reaper is killed") {
  AgentUnderTest agent({"nested"});
  StartStubbornWorkers(agent);
  const UniqueFd proper = OpenPidfd(agent.proper());
  ::kill(agent.reaper(), SIGKILL);
  CHECK(agent.AwaitNoProcess());
  CHECK(agent.AwaitExit() == 137);
  CHECK(AwaitProcessEnd(proper));
  CHECK(agent.DirectoryCount() == 0);
}

TEST_CASE("agent kills everything when the driver is gone") {
  AgentUnderTest agent({"nested"});
  StartStubbornWorkers(agent);
  agent.CloseStandardInput();
  CHECK(agent.AwaitNoProcess());
  CHECK(agent.AwaitExit() == 1);
  CHECK(agent.DirectoryCount() == 0);
}

TEST_CASE("agent kills everything when the driver's stream breaks") {
  AgentUnderTest agent({"nested"});
  StartStubbornWorkers(agent);
  agent.driver().Shutdown();
  CHECK(agent.AwaitNoProcess());
  CHECK(agent.AwaitExit() == 1);
}

TEST_CASE("sweep of a third process ends what reaper and agent proper left") {
  AgentUnderTest agent({"nested"});
  StartStubbornWorkers(agent);
  ::kill(agent.reaper(), SIGSTOP);
  ::kill(agent.proper(), SIGKILL);
  ::kill(agent.reaper(), SIGKILL);
  CHECK(Sweep({agent.job(), "127.0.0.1", false}, std::chrono::seconds(4)));
  CHECK(agent.ProcessCount() == 0);
}

TEST_CASE("reaper kills a stopped agent proper when the driver is gone") {
  AgentUnderTest agent({"nested"});
  StartStubbornWorkers(agent);
  ::kill(agent.proper(), SIGSTOP);
  agent.CloseStandardInput();
  CHECK(agent.AwaitNoProcess());
  CHECK(agent.AwaitExit() == 137);
}

TEST_CASE("agent proper wakes a stopped reaper when the driver is gone") {
  AgentUnderTest agent({"nested"});
  StartStubbornWorkers(agent);
  ::kill(agent.reaper(), SIGSTOP);
  agent.CloseStandardInput();
  CHECK(agent.AwaitNoProcess());
  CHECK(agent.AwaitExit() == 1);
}

TEST_CASE("agent proper killed just before the reaper leaves no worker process") {
  AgentUnderTest agent({"join"});
  agent.SpawnAndJoin(1);
  agent.SpawnAndJoin(2);
  ::kill(agent.reaper(), SIGSTOP);
  ::kill(agent.proper(), SIGKILL);
  ::kill(agent.reaper(), SIGKILL);
  // Nobody is left to kill them: the kernel does it, since their parent's thread has ended.
  CHECK(agent.AwaitNoProcess());
}

TEST_CASE("agent ignores Ctrl-C") {
  AgentUnderTest agent({"join"});
  ::kill(agent.reaper(), SIGINT);
  ::kill(agent.proper(), SIGINT);
  agent.SpawnAndJoin(1);
  agent.Stop();
  CHECK(agent.AwaitExit() == 0);
}

}  // namespace muster::launcher
