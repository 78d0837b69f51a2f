#include "test/sim/job/network.h"

#include <catch2/catch.hpp>
#include <memory>
#include <vector>

namespace muster::sim {
namespace {

using std::chrono::seconds;

struct Fixture {
  Fixture() : universe(7), network(universe) {
    flow = std::make_shared<Flow>(universe, network, "here", "there");
  }
  void Send(int value) {
    flow->Push([this, value] { arrived.push_back(value); });
  }
  void RunFor(Duration time) {
    const Instant end = universe.now() + time;
    universe.At(time, [] {});
    universe.Run([&] { return universe.now() >= end; });
  }

  Universe universe;
  Network network;
  std::shared_ptr<Flow> flow;  // Shared with what is under way on it.
  std::vector<int> arrived;
};

TEST_CASE_METHOD(Fixture, "what is sent arrives in order, and later") {
  for (int i = 0; i < 100; ++i) {
    Send(i);
  }
  CHECK(arrived.empty());
  RunFor(seconds(1));
  REQUIRE(arrived.size() == 100);
  for (int i = 0; i < 100; ++i) {
    CHECK(arrived[static_cast<size_t>(i)] == i);
  }
}

TEST_CASE_METHOD(Fixture, "a cut holds up what is under way until it is healed") {
  Send(1);
  network.Cut("here", "there");
  Send(2);
  RunFor(seconds(5));
  CHECK(arrived.empty());
  network.Heal("here", "there");
  RunFor(seconds(1));
  CHECK(arrived == std::vector<int>{1, 2});
}

TEST_CASE_METHOD(Fixture, "a cut has a direction") {
  network.Cut("there", "here");
  Send(1);
  RunFor(seconds(1));
  CHECK(arrived == std::vector<int>{1});
  CHECK(network.Reaches("here", "there"));
  CHECK_FALSE(network.Connected("here", "there"));
}

TEST_CASE_METHOD(Fixture, "a machine always reaches itself") {
  network.Cut("here", "here");
  CHECK(network.Connected("here", "here"));
}

TEST_CASE_METHOD(Fixture, "what has not arrived before a reset never does") {
  Send(1);
  flow->Reset();
  Send(2);
  RunFor(seconds(1));
  CHECK(arrived == std::vector<int>{2});
}

TEST_CASE_METHOD(Fixture, "a reset by what arrives ends the delivery") {
  flow->Push([this] { flow->Reset(); });
  Send(1);
  RunFor(seconds(1));
  CHECK(arrived.empty());
}

TEST_CASE_METHOD(Fixture, "all cuts are healed at once") {
  network.Cut("here", "there");
  network.Cut("there", "here");
  CHECK_FALSE(network.whole());
  Send(1);
  network.HealAll();
  CHECK(network.whole());
  RunFor(seconds(1));
  CHECK(arrived == std::vector<int>{1});
}

}  // namespace
}  // namespace muster::sim
