#include "launcher/agent/agent.h"

#include <signal.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "common/worker_segment.h"
#include "test/launcher/agent/agent_fixture.h"

namespace muster::launcher {
namespace {

using Case = v1::AgentReport;

size_t IndexOf(const std::vector<v1::AgentReport>& reports, Case::ReportCase report_case) {
  const auto it = std::find_if(reports.begin(), reports.end(), [&](const v1::AgentReport& report) {
    return report.report_case() == report_case;
  });
  return static_cast<size_t>(it - reports.begin());
}

size_t CountOf(const std::string& text, const std::string& in) {
  size_t count = 0;
  for (size_t at = in.find(text); at != std::string::npos; at = in.find(text, at + 1)) {
    ++count;
  }
  return count;
}

v1::AgentOrder AskAbout(std::initializer_list<uint64_t> incarnations) {
  v1::AgentOrder order;
  order.mutable_ask_suspects()->set_generation(3);
  for (const uint64_t incarnation : incarnations) {
    order.mutable_ask_suspects()->add_incarnations(incarnation);
  }
  return order;
}

}  // namespace

TEST_CASE("agent spawns workers, lets them join and relays their world") {
  AgentUnderTest agent({"join"});
  const v1::WorkerJoined first = agent.SpawnAndJoin(11, 0);
  const v1::WorkerJoined second = agent.SpawnAndJoin(12, 1);
  CHECK(first.pid() != second.pid());
  REQUIRE(first.addresses_size() == 1);
  CHECK(first.addresses(0).literal() == "127.0.0.1:4711");
  CHECK(agent.driver().AwaitOutput("joined 127.0.0.1 slot 1 first_start 1"));

  agent.Form(5, {11, 12});
  CHECK(agent.driver().Await(Case::kWorkerFormed, 11).worker_formed().generation() == 5);
  CHECK(agent.driver().Await(Case::kWorkerFormed, 12).worker_formed().generation() == 5);
  CHECK(agent.driver().AwaitOutput(
      "world g5 rank 1/3 local 0/2 cross 1/2 coordinator 127.0.0.1:99 key link\n"));
  CHECK(agent.driver().AwaitOutput(
      "world g5 rank 2/3 local 1/2 cross 0/1 coordinator 127.0.0.1:99 key link\n"));

  agent.SpawnAndJoin(13, 2);
  CHECK(agent.driver().AwaitOutput("joined 127.0.0.1 slot 2 first_start 0"));
}

TEST_CASE("agent relays orders to the workers that they concern") {
  AgentUnderTest agent({"join"});
  agent.SpawnAndJoin(1);
  agent.SpawnAndJoin(2);
  agent.Form(1, {1});
  agent.driver().Await(Case::kWorkerFormed, 1);

  agent.NotifyPending(1, true);
  v1::AgentOrder admit;
  admit.mutable_admit()->set_incarnation(2);
  admit.mutable_admit()->mutable_provisional()->set_rank(42);
  agent.driver().Order(admit);
  CHECK(agent.driver().AwaitOutput("pending 1"));
  CHECK(agent.driver().AwaitOutput("admitted rank 42"));

  v1::AgentOrder drain;
  drain.mutable_drain()->add_incarnations(1);
  agent.driver().Order(drain);
  const v1::WorkerLeft left = agent.driver().Await(Case::kWorkerLeft, 1).worker_left();
  CHECK(left.held().sequence() == 7);

  agent.Revoke(1, "suspect 0");
  const v1::PeerLost lost = agent.driver().Await(Case::kPeerLost).peer_lost();
  CHECK(lost.reporter() == 1);
  CHECK(lost.suspect_ranks(0) == 0);
  CHECK(agent.driver().AwaitOutput("revoked g1"));

  v1::AgentOrder refuse;
  refuse.mutable_refuse()->set_incarnation(2);
  refuse.mutable_refuse()->set_reason("it was too slow");
  agent.driver().Order(refuse);
  CHECK(agent.driver().Await(Case::kWorkerExited, 2).worker_exited().code() == 9);
}

TEST_CASE("agent reports a killed worker lost first and exited when it is gone") {
  AgentUnderTest agent({"nested"});
  const v1::WorkerJoined joined = agent.SpawnAndJoin(1);
  ::kill(static_cast<pid_t>(joined.pid()), SIGKILL);
  const v1::WorkerLost lost = agent.driver().Await(Case::kWorkerLost, 1).worker_lost();
  CHECK(lost.kind() == v1::WorkerLost::KIND_OWNER_DIED);
  const v1::WorkerExited exited = agent.driver().Await(Case::kWorkerExited, 1).worker_exited();
  CHECK(exited.code() == 137);
  CHECK(exited.signal() == SIGKILL);
  CHECK(agent.ProcessCount() == 0);
  const std::vector<v1::AgentReport> reports = agent.driver().reports();
  CHECK(IndexOf(reports, Case::kWorkerLost) < IndexOf(reports, Case::kWorkerExited));
}

TEST_CASE("agent tells the members of a world at once that one of them died") {
  AgentUnderTest agent({"join"});
  const v1::WorkerJoined joined = agent.SpawnAndJoin(1);
  agent.SpawnAndJoin(2, 1);
  agent.SpawnAndJoin(3, 2);
  agent.Form(4, {1, 2});
  agent.driver().Await(Case::kWorkerFormed, 1);
  agent.driver().Await(Case::kWorkerFormed, 2);
  ::kill(static_cast<pid_t>(joined.pid()), SIGKILL);
  agent.driver().Await(Case::kWorkerLost, 1);
  CHECK(agent.driver().AwaitOutput("revoked g4"));
  agent.Revoke(4, "the driver says so, too");
  agent.NotifyPending(4, true);
  CHECK(agent.driver().AwaitOutput("pending 1"));
  CHECK(CountOf("revoked", agent.driver().output()) == 1);
}

TEST_CASE("agent leaves it to the driver what the death of a worker means that is done or ended") {
  const bool done = GENERATE(true, false);
  AgentUnderTest agent({"join"});
  agent.SpawnAndJoin(1);
  const v1::WorkerJoined joined = agent.SpawnAndJoin(2, 1);
  agent.Form(4, {1, 2});
  agent.driver().Await(Case::kWorkerFormed, 1);
  agent.driver().Await(Case::kWorkerFormed, 2);
  if (done) {
    agent.NotifyPending(4, false);
    agent.driver().Await(Case::kWorkerDone, 2);
    ::kill(static_cast<pid_t>(joined.pid()), SIGKILL);
  } else {
    agent.Kill(2, true);
  }
  agent.driver().Await(Case::kWorkerLost, 2);
  agent.NotifyPending(4, true);
  CHECK(agent.driver().AwaitOutput("pending 1"));
  CHECK(CountOf("revoked", agent.driver().output()) == 0);
}

// Prints how fast the news of a death is; not run by default, since time on a shared machine is no
// criterion for right or wrong.
TEST_CASE("agent reports a death quickly", "[.latency]") {
  AgentUnderTest agent({"join"});
  for (uint64_t incarnation = 1; incarnation <= 30; ++incarnation) {
    const v1::WorkerJoined joined = agent.SpawnAndJoin(incarnation);
    const auto start = std::chrono::steady_clock::now();
    ::kill(static_cast<pid_t>(joined.pid()), SIGKILL);
    agent.driver().Await(Case::kWorkerLost, incarnation);
    const auto lost = std::chrono::steady_clock::now();
    agent.driver().Await(Case::kWorkerExited, incarnation);
    const auto exited = std::chrono::steady_clock::now();
    std::printf("lost after %ld us, exited after %ld us\n",
                static_cast<long>((lost - start).count() / 1000),
                static_cast<long>((exited - start).count() / 1000));
  }
}

TEST_CASE("agent reports the code of a worker that ends without a goodbye") {
  AgentUnderTest agent({"join"});
  agent.SpawnAndJoin(1);
  agent.Form(1, {1});
  agent.driver().Await(Case::kWorkerFormed, 1);
  agent.Revoke(1, "exit 7");
  agent.driver().Await(Case::kWorkerLost, 1);
  const v1::WorkerExited exited = agent.driver().Await(Case::kWorkerExited, 1).worker_exited();
  CHECK(exited.code() == 7);
  CHECK(exited.signal() == 0);
}

TEST_CASE("agent reports the code of a worker behind a shell") {
  AgentUnderTest agent(
      AgentUnderTest::Command{{"/bin/sh", "-c", FakeWorkerPath() + " join; exit $?"}});
  agent.Spawn(1);
  const uint64_t started = agent.driver().Await(Case::kWorkerStarted, 1).worker_started().pid();
  const uint64_t joined = agent.driver().Await(Case::kWorkerJoined, 1).worker_joined().pid();
  CHECK(started != joined);
  agent.Form(1, {1});
  agent.driver().Await(Case::kWorkerFormed, 1);
  agent.Revoke(1, "exit 7");
  agent.driver().Await(Case::kWorkerLost, 1);
  CHECK(agent.driver().Await(Case::kWorkerExited, 1).worker_exited().code() == 7);
}

TEST_CASE("agent reports an unlocked mutex as a goodbye") {
  AgentUnderTest agent({"join"});
  agent.SpawnAndJoin(1);
  agent.Form(1, {1});
  agent.driver().Await(Case::kWorkerFormed, 1);
  agent.Revoke(1, "unlock");
  CHECK(agent.driver().Await(Case::kWorkerBye).worker_bye().incarnation() == 1);
}

TEST_CASE("agent reports what a worker said last before it reports its exit") {
  AgentUnderTest agent({"join"});
  for (uint64_t incarnation = 1; incarnation <= 10; ++incarnation) {
    agent.SpawnAndJoin(incarnation);
    agent.Release(incarnation);
    CHECK(agent.driver().Await(Case::kWorkerExited, incarnation).worker_exited().code() == 0);
  }
  std::vector<Case::ReportCase> order;
  for (const v1::AgentReport& report : agent.driver().reports()) {
    if (report.has_worker_done() || report.has_worker_bye() || report.has_worker_exited()) {
      order.push_back(report.report_case());
    }
  }
  REQUIRE(order.size() == 30);
  for (size_t i = 0; i < order.size(); i += 3) {
    CHECK(order[i] == Case::kWorkerDone);
    CHECK(order[i + 1] == Case::kWorkerBye);
    CHECK(order[i + 2] == Case::kWorkerExited);
  }
}

TEST_CASE("agent refuses a wrong key at both of its sockets") {
  AgentUnderTest agent({"bad-key"});
  agent.Spawn(1);
  CHECK(agent.driver().Await(Case::kWorkerExited, 1).worker_exited().code() == 0);
  CHECK(agent.driver().AwaitOutput("page: this agent has no such worker, or the key is wrong"));
  CHECK(agent.driver().AwaitOutput("join: 7 "));
}

TEST_CASE("agent gives the members of its newest generation, and nobody else, shared memory") {
  AgentUnderTest agent({"segments"});
  agent.SpawnAndJoin(1, 0);
  agent.SpawnAndJoin(2, 1);
  agent.Form(4, {1, 2});
  agent.driver().Await(Case::kWorkerFormed, 1);
  agent.driver().Await(Case::kWorkerFormed, 2);
  const std::string bytes = std::to_string(SegmentBytes(2)) + " bytes\n";
  CHECK(agent.driver().AwaitOutput("segment g4: " + bytes));
  for (const char* line : {"segment g3: this worker is not a member of generation 3\n",
                           "segment g5: this worker is not a member of generation 5\n",
                           "segment g4: this agent has no such worker, or the key is wrong\n"}) {
    CHECK(agent.driver().AwaitOutput(line));
  }

  agent.Form(5, {1});  // Without 2.
  agent.driver().Await(Case::kWorkerFormed, 1);
  CHECK(agent.driver().AwaitOutput("segment g5: " + std::to_string(SegmentBytes(1))));
  agent.Revoke(4, "late");  // Only worker 2 is in it still.
  CHECK(agent.driver().AwaitOutput("segment g4: generation 4 is over"));

  v1::AgentOrder refuse;
  refuse.mutable_refuse()->set_incarnation(2);
  refuse.mutable_refuse()->set_reason("it was too slow");
  agent.driver().Order(refuse);
  CHECK(agent.driver().AwaitOutput("segment g1: this worker was expelled from the job"));

  agent.Revoke(5, "over");
  CHECK(agent.driver().AwaitOutput("segment g5: generation 5 is over"));
}

TEST_CASE("agent refuses a second process or join of one incarnation") {
  AgentUnderTest agent({"join-twice"});
  agent.SpawnAndJoin(1);
  CHECK(agent.driver().AwaitOutput("only one process per slot may call init()\njoin: 6 "));
  agent.Release(1);
  CHECK(agent.driver().Await(Case::kWorkerExited, 1).worker_exited().code() == 0);
}

TEST_CASE("agent reports a command that cannot be run") {
  AgentUnderTest agent(AgentUnderTest::Command{{"/nowhere/to/be/found"}});
  agent.Spawn(1);
  const v1::SpawnFailed failed = agent.driver().Await(Case::kSpawnFailed, 1).spawn_failed();
  CHECK(failed.message().find("/nowhere/to/be/found") != std::string::npos);
}

TEST_CASE("agent gives workers their environment and no standard input") {
  AgentUnderTest agent(AgentUnderTest::Command{
      {"/bin/sh",
       "-c",
       "echo $GREETING $HOROVOD_RANK/$HOROVOD_SIZE $HOROVOD_HOSTNAME $HOROVOD_ELASTIC "
       "$MUSTER_SLOT; cat; echo end; exit 3"}});
  agent.Spawn(1, 1);
  CHECK(agent.driver().Await(Case::kWorkerExited, 1).worker_exited().code() == 3);
  CHECK(agent.driver().AwaitOutput("hello 1/2 127.0.0.1 1 1\nend\n"));
}

TEST_CASE("agent answers for suspects at once") {
  AgentUnderTest agent({"join"});
  const v1::WorkerJoined joined = agent.SpawnAndJoin(1);
  ::kill(static_cast<pid_t>(joined.pid()), SIGSTOP);
  agent.driver().Order(AskAbout({1, 99}));
  const v1::SuspectAnswered one =
      agent.driver().Await(Case::kSuspectAnswered, 1).suspect_answered();
  CHECK(one.alive());
  CHECK(one.generation() == 3);
  CHECK_FALSE(agent.driver().Await(Case::kSuspectAnswered, 99).suspect_answered().alive());
  ::kill(static_cast<pid_t>(joined.pid()), SIGKILL);
  agent.driver().Await(Case::kWorkerLost, 1);
  agent.driver().Order(AskAbout({1}));
  CHECK_FALSE(agent.driver().Await(Case::kSuspectAnswered, 1).suspect_answered().alive());
}

TEST_CASE("agent terminates a worker's group and kills what ignores that") {
  AgentUnderTest agent(AgentUnderTest::Command{
      {"/bin/sh", "-c", "trap 'echo got TERM' TERM; echo ready; while :; do sleep 0.05; done"}});
  agent.Spawn(1);
  REQUIRE(agent.driver().AwaitOutput("ready"));
  agent.Kill(1, false);
  CHECK(agent.driver().AwaitOutput("got TERM"));
  agent.Kill(1, true);
  CHECK(agent.driver().Await(Case::kWorkerExited, 1).worker_exited().code() == 137);
}

TEST_CASE("agent passes a user's signal to the worker and not to the shell around it") {
  AgentUnderTest agent(
      AgentUnderTest::Command{{"/bin/sh", "-c", FakeWorkerPath() + " join; echo $?; exit 5"}});
  agent.SpawnAndJoin(1);
  v1::AgentOrder order;
  order.mutable_signal_workers()->set_signal(SIGUSR1);
  agent.driver().Order(order);
  CHECK(agent.driver().AwaitOutput("138"));
  CHECK(agent.driver().Await(Case::kWorkerExited, 1).worker_exited().code() == 5);
}

TEST_CASE("agent asks for a drain once when it gets SIGTERM") {
  AgentUnderTest agent({"join"});
  agent.SpawnAndJoin(1);  // The driver knows of it: else it would end.
  ::kill(agent.reaper(), SIGTERM);
  agent.driver().Await(Case::kDrainRequested);
  ::kill(agent.proper(), SIGTERM);
  agent.SpawnAndJoin(2);
  const std::vector<v1::AgentReport> reports = agent.driver().reports();
  CHECK(std::count_if(reports.begin(), reports.end(), [](const v1::AgentReport& report) {
          return report.has_drain_requested();
        }) == 1);
}

TEST_CASE("agent sends summaries") {
  AgentUnderTest agent({"join"});
  agent.SpawnAndJoin(1);
  const auto has_worker = [](const v1::AgentReport& report) {
    return report.summary().workers_alive() == 1;
  };
  const v1::AgentSummary first = agent.driver().Await(has_worker).summary();
  const v1::AgentSummary second = agent.driver().Await(has_worker).summary();
  CHECK(second.sequence() > first.sequence());
}

TEST_CASE("agent ends with code 0 when it is stopped, with all that it started") {
  AgentUnderTest agent({"nested"});
  agent.SpawnAndJoin(1);
  agent.SpawnAndJoin(2);
  agent.Stop();
  CHECK(agent.driver().Await(Case::kWorkerExited, 1).worker_exited().code() == 137);
  CHECK(agent.driver().Await(Case::kWorkerExited, 2).worker_exited().code() == 137);
  CHECK(agent.driver().AwaitEnd());
  CHECK(agent.AwaitExit() == 0);
  CHECK(agent.ProcessCount() == 0);
  CHECK(agent.DirectoryCount() == 0);
}

}  // namespace muster::launcher
