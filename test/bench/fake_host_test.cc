#include "bench/fake_host.h"

#include <catch2/catch.hpp>

namespace muster::bench {
namespace {

v1::AgentOrder Spawn(uint64_t incarnation) {
  v1::AgentOrder order;
  order.mutable_spawn_worker()->set_incarnation(incarnation);
  return order;
}

v1::AgentOrder Form(uint64_t generation,
                    const std::vector<uint32_t>& host_sizes,
                    const std::vector<uint64_t>& members) {
  v1::AgentOrder order;
  v1::FormWorld& world = *order.mutable_form_world();
  world.set_generation(generation);
  world.mutable_layout()->mutable_host_sizes()->Add(host_sizes.begin(), host_sizes.end());
  world.mutable_members()->Add(members.begin(), members.end());
  return order;
}

v1::AgentOrder Pending(uint64_t generation, bool pending) {
  v1::AgentOrder order;
  order.mutable_notify_pending()->set_generation(generation);
  order.mutable_notify_pending()->set_pending(pending);
  return order;
}

// Workers 4 and 5, in generation 2 with three others elsewhere.
FakeHost Example() {
  FakeHost host("127.0.0.1:1");
  host.Perform(Spawn(4));
  host.Perform(Spawn(5));
  host.Perform(Form(2, {3, 2}, {4, 5}));
  return host;
}

}  // namespace

TEST_CASE("a fake worker starts and joins at once, and is warm when it is admitted") {
  FakeHost host("127.0.0.1:1");
  const FakeHost::Reports started = host.Perform(Spawn(4));
  REQUIRE(started.size() == 2);
  CHECK(started[0].worker_started().incarnation() == 4);
  CHECK(started[1].worker_joined().addresses(0).literal() == "127.0.0.1:1");
  v1::AgentOrder admit;
  admit.mutable_admit()->set_incarnation(4);
  const FakeHost::Reports admitted = host.Perform(admit);
  REQUIRE(admitted.size() == 1);
  CHECK(admitted[0].worker_warm().incarnation() == 4);
}

TEST_CASE("every member of a fake host forms; the commit that it holds is the first world's") {
  FakeHost host = Example();
  CHECK(host.generation() == 2);
  CHECK(host.world_size() == 5);
  CHECK(host.members() == std::vector<uint64_t>{4, 5});
  const FakeHost::Reports synced = host.Sync();
  REQUIRE(synced.size() == 2);
  CHECK(synced[1].worker_synced().incarnation() == 5);
  CHECK(synced[1].worker_synced().commit().generation() == 1);
  const FakeHost::Reports formed = host.Perform(Form(3, {2, 2}, {4, 5}));
  REQUIRE(formed.size() == 2);
  CHECK(formed[0].worker_formed().incarnation() == 4);
  CHECK(formed[0].worker_formed().generation() == 3);
  CHECK(formed[0].worker_formed().held().generation() == 1);
}

TEST_CASE("before its first sync a fake worker holds no commit") {
  FakeHost host("127.0.0.1:1");
  host.Perform(Spawn(4));
  const FakeHost::Reports formed = host.Perform(Form(1, {1}, {4}));
  REQUIRE(formed.size() == 1);
  CHECK_FALSE(formed[0].worker_formed().has_held());
}

TEST_CASE("members of a fake host leave when they are told and have synced, whichever is later") {
  FakeHost host = Example();
  CHECK(host.Perform(Pending(2, true)).empty());
  FakeHost::Reports reports = host.Sync();
  REQUIRE(reports.size() == 4);
  CHECK(reports[2].worker_left().incarnation() == 4);
  CHECK(reports[3].worker_left().held().generation() == 1);

  host.Perform(Form(3, {3, 2}, {4, 5}));
  CHECK(host.Sync().size() == 2);
  CHECK(host.Perform(Pending(2, true)).empty());
  CHECK(host.Perform(Pending(3, true)).size() == 2);
}

TEST_CASE("members of a fake host stay if the wish has vanished") {
  FakeHost host = Example();
  host.Perform(Pending(2, true));
  host.Perform(Pending(2, false));
  CHECK(host.Sync().size() == 2);
}

TEST_CASE("a lost fake worker is reported as lost, then as gone, once") {
  FakeHost host = Example();
  const FakeHost::Reports lost = host.Lose(4);
  REQUIRE(lost.size() == 2);
  CHECK(lost[0].worker_lost().incarnation() == 4);
  CHECK(lost[0].worker_lost().kind() == v1::WorkerLost::KIND_OWNER_DIED);
  CHECK(lost[1].worker_exited().code() == 137);
  CHECK(host.members() == std::vector<uint64_t>{5});
  v1::AgentOrder kill;
  kill.mutable_kill_worker()->set_incarnation(4);
  CHECK(host.Perform(kill).empty());
}

TEST_CASE("a fake host says who of the suspects is alive") {
  FakeHost host = Example();
  host.Lose(4);
  v1::AgentOrder ask;
  ask.mutable_ask_suspects()->set_generation(2);
  ask.mutable_ask_suspects()->add_incarnations(4);
  ask.mutable_ask_suspects()->add_incarnations(5);
  const FakeHost::Reports answers = host.Perform(ask);
  REQUIRE(answers.size() == 2);
  CHECK_FALSE(answers[0].suspect_answered().alive());
  CHECK(answers[1].suspect_answered().alive());
}

TEST_CASE("a fake host that is stopped ends its workers") {
  FakeHost host = Example();
  v1::AgentOrder stop;
  stop.mutable_stop_agent();
  const FakeHost::Reports ended = host.Perform(stop);
  REQUIRE(ended.size() == 2);
  CHECK(ended[0].worker_exited().incarnation() == 4);
  CHECK(host.stopped());
}

}  // namespace muster::bench
