#include "launcher/session/replay_queue.h"

#include <catch2/catch.hpp>
#include <random>
#include <vector>

namespace muster::launcher {
namespace {

struct Message {
  uint64_t number = 0;
  int content = 0;
  void set_sequence(uint64_t sequence) { number = sequence; }
  uint64_t sequence() const { return number; }
};

}  // namespace

TEST_CASE("a replay queue keeps what is not acknowledged, in order") {
  ReplayQueue<Message> queue;
  for (int i = 1; i <= 5; ++i) {
    CHECK(queue.Push({0, i}).number == static_cast<uint64_t>(i));
  }
  CHECK(queue.first() == 1);
  REQUIRE(queue.Acknowledge(3));
  CHECK(queue.first() == 4);
  REQUIRE(queue.size() == 2);
  CHECK(queue.unacknowledged()[0].content == 4);
  CHECK(queue.unacknowledged()[1].content == 5);
  CHECK(queue.Find(3) == nullptr);
  REQUIRE(queue.Find(5) != nullptr);
  CHECK(queue.Find(5)->content == 5);
  CHECK(queue.Find(6) == nullptr);
  REQUIRE(queue.Acknowledge(2));  // An old acknowledgement changes nothing.
  CHECK(queue.size() == 2);
  REQUIRE(queue.Acknowledge(5));
  CHECK(queue.size() == 0);
  CHECK(queue.first() == 6);
  CHECK(queue.Push({0, 6}).number == 6);
}

TEST_CASE("a replay queue refuses an acknowledgement of what was never sent") {
  ReplayQueue<Message> queue;
  CHECK(queue.Acknowledge(0));
  CHECK_FALSE(queue.Acknowledge(1));
  queue.Push({0, 1});
  CHECK_FALSE(queue.Acknowledge(2));
  CHECK(queue.size() == 1);
}

TEST_CASE("a replay filter takes each message once and in order") {
  ReplayFilter filter;
  using Verdict = ReplayFilter::Verdict;
  CHECK(filter.Judge(1) == Verdict::kNew);
  CHECK(filter.Judge(2) == Verdict::kGap);
  filter.Take();
  CHECK(filter.Judge(1) == Verdict::kRepeat);
  CHECK(filter.Judge(0) == Verdict::kRepeat);
  CHECK(filter.Judge(2) == Verdict::kNew);
  CHECK(filter.received() == 1);
}

TEST_CASE("what passes a queue and a filter over breaking connections arrives once and in order") {
  const unsigned seed = GENERATE(range(1U, 50U));
  CAPTURE(seed);
  std::mt19937 random(seed);
  ReplayQueue<Message> queue;
  ReplayFilter filter;
  std::vector<int> arrived;
  int next = 1;
  while (arrived.size() < 200) {
    // One connection: first what is left, then new ones, until it breaks.
    std::deque<Message> wire(queue.unacknowledged());
    for (unsigned i = random() % 20; i > 0 && next <= 200; --i) {
      wire.push_back(queue.Push({0, next++}));
    }
    wire.resize(wire.empty() ? 0 : random() % (wire.size() + 1));
    for (const Message& message : wire) {
      const ReplayFilter::Verdict verdict = filter.Judge(message.number);
      REQUIRE(verdict != ReplayFilter::Verdict::kGap);
      if (verdict == ReplayFilter::Verdict::kNew) {
        filter.Take();
        arrived.push_back(message.content);
      }
    }
    if (random() % 2 == 0) {
      REQUIRE(queue.Acknowledge(filter.received()));
    }
  }
  for (size_t i = 0; i < arrived.size(); ++i) {
    REQUIRE(arrived[i] == static_cast<int>(i) + 1);
  }
}

}  // namespace muster::launcher
