#include "launcher/driver/convert.h"

#include <catch2/catch.hpp>

namespace muster::launcher {
namespace {

const HostId kHost{"127.0.0.1"};

Member MakeMember(uint64_t worker, const char* host, uint32_t slot) {
  return {{worker}, {{host}, slot}, {"127.0.0.1:" + std::to_string(4000 + worker)}};
}

TEST_CASE("convert gives the event in each report that decides something") {
  v1::AgentReport report;
  report.mutable_worker_exited()->set_incarnation(7);
  report.mutable_worker_exited()->set_code(139);
  report.mutable_worker_exited()->set_signal(11);
  const std::optional<Event> exited = ToEvent(report, kHost);
  REQUIRE(exited.has_value());
  CHECK(std::get<WorkerExited>(*exited).worker == Incarnation{7});
  CHECK(std::get<WorkerExited>(*exited).code == 139);
  CHECK(std::get<WorkerExited>(*exited).signal == 11);
  CHECK(SubjectOf(report) == Incarnation{7});

  report.mutable_peer_lost()->set_reporter(3);
  report.mutable_peer_lost()->set_generation(5);
  report.mutable_peer_lost()->add_suspect_ranks(2);
  const std::optional<Event> broken = ToEvent(report, kHost);
  REQUIRE(broken.has_value());
  CHECK(std::get<PeerLost>(*broken).suspect_ranks == std::vector<uint32_t>{2});
  CHECK(std::get<PeerLost>(*broken).generation == Generation{5});

  report.mutable_drain_requested();
  CHECK(std::get<DrainRequested>(*ToEvent(report, kHost)).host == kHost);
  CHECK(SubjectOf(report) == std::nullopt);
}

TEST_CASE("convert takes all addresses of a worker that joins, and of one that listens elsewhere") {
  v1::AgentReport report;
  report.mutable_worker_joined()->set_incarnation(4);
  report.mutable_worker_joined()->add_addresses()->set_literal("127.0.0.1:5");
  const auto joined = std::get<WorkerJoined>(*ToEvent(report, kHost));
  CHECK(joined.worker == Incarnation{4});
  CHECK(joined.addresses == std::vector<std::string>{"127.0.0.1:5"});

  report.mutable_worker_listening()->set_incarnation(4);
  report.mutable_worker_listening()->add_addresses()->set_literal("127.0.0.1:5");
  report.mutable_worker_listening()->add_addresses()->set_literal("[fd00::7]:6");
  const auto listening = std::get<WorkerListening>(*ToEvent(report, kHost));
  CHECK(listening.worker == Incarnation{4});
  CHECK(listening.addresses == std::vector<std::string>{"127.0.0.1:5", "[fd00::7]:6"});
  CHECK(SubjectOf(report) == Incarnation{4});
}

TEST_CASE("convert tells a worker that holds (0,0) from one that holds nothing") {
  v1::AgentReport report;
  report.mutable_worker_formed()->set_incarnation(1);
  report.mutable_worker_formed()->set_generation(2);
  CHECK(std::get<WorkerFormed>(*ToEvent(report, kHost)).held == std::nullopt);
  report.mutable_worker_formed()->mutable_held();
  CHECK(std::get<WorkerFormed>(*ToEvent(report, kHost)).held == CommitId{0, 0});
}

TEST_CASE("convert finds no event in hello, summaries, empty reports and unknown losses") {
  v1::AgentReport report;
  CHECK_FALSE(ToEvent(report, kHost).has_value());
  report.mutable_hello()->set_host("a");
  CHECK_FALSE(ToEvent(report, kHost).has_value());
  report.mutable_summary();
  CHECK_FALSE(ToEvent(report, kHost).has_value());
  report.mutable_listeners_opened();
  CHECK_FALSE(ToEvent(report, kHost).has_value());
  report.mutable_worker_lost()->set_incarnation(1);
  CHECK_FALSE(ToEvent(report, kHost).has_value());
}

TEST_CASE("convert gives each host one FormWorld with its own members in rank order") {
  const FormWorld world{
      {9}, {MakeMember(4, "a", 1), MakeMember(6, "a", 0), MakeMember(5, "b", 0)}, true};
  const std::map<HostId, v1::FormWorld> messages = SplitByHost(world, "key", "growth");
  REQUIRE(messages.size() == 2);
  const v1::FormWorld& a = messages.at({"a"});
  const v1::FormWorld& b = messages.at({"b"});
  CHECK(a.generation() == 9);
  CHECK(a.host_index() == 0);
  CHECK(b.host_index() == 1);
  REQUIRE(a.members_size() == 2);
  CHECK(a.members(0) == 4);
  CHECK(a.members(1) == 6);
  REQUIRE(b.members_size() == 1);
  CHECK(b.members(0) == 5);
  REQUIRE(b.layout().host_sizes_size() == 2);
  CHECK(b.layout().host_sizes(0) == 2);
  CHECK(b.layout().host_sizes(1) == 1);
  REQUIRE(b.coordinator_size() == 1);
  CHECK(b.coordinator(0).literal() == "127.0.0.1:4004");
  CHECK(b.counts_as_reset());
}

TEST_CASE("convert keeps a FormWorld for 64 hosts of 64 workers below 1 KiB per agent") {
  FormWorld world{{1000000}, {}, true};
  for (uint64_t i = 0; i < 64 * 64; ++i) {
    world.members.push_back(
        MakeMember(100000 + i, ("host-" + std::to_string(i / 64)).c_str(), i % 64));
  }
  for (const auto& [host, message] : SplitByHost(world, std::string(32, 'k'), "rank 7 was lost")) {
    CHECK(message.ByteSizeLong() <= 1024);
  }
}

}  // namespace
}  // namespace muster::launcher
