#include "worker/shm/bell.h"

#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <thread>

#include "test/worker/shm/shm_fixture.h"

namespace muster::worker {
namespace {

using Clock = std::chrono::steady_clock;
constexpr Patience kNone{0, 0};

Bell::Deadline In(std::chrono::milliseconds time) {
  return Clock::now() + time;
}

TEST_CASE("bell ends a wait as soon as it is ready, without a ring") {
  BellWord word{};
  Bell bell(word);
  bell.Enter();
  CHECK(bell.Wait(kNone, In(std::chrono::seconds(10)), [] { return true; }));
  int looks = 0;
  CHECK(bell.Wait({5, 1}, In(std::chrono::seconds(10)), [&] { return ++looks == 4; }));
  looks = 0;
  // A yield to somebody else may be the last one; before it sleeps it looks once more.
  CHECK(bell.Wait({0, 5}, In(std::chrono::seconds(10)), [&] { return ++looks >= 2; }));
  CHECK(word.state == BellState::kAwake);
}

TEST_CASE("bell gives up at the deadline, and at one long gone") {
  BellWord word{};
  Bell bell(word);
  bell.Enter();
  const auto never = [] { return false; };
  const auto begin = Clock::now();
  CHECK_FALSE(bell.Wait(kNone, In(std::chrono::milliseconds(20)), never));
  CHECK(Clock::now() - begin >= std::chrono::milliseconds(20));
  CHECK_FALSE(bell.Wait(kNone, In(std::chrono::milliseconds(-20)), never));
  CHECK_FALSE(bell.Wait(kNone, Clock::time_point(std::chrono::nanoseconds(-5)), never));
  CHECK_FALSE(bell.Wait(kNone, Clock::time_point::min(), never));
  CHECK(bell.Wait(kNone, Clock::time_point::min(), [] { return true; }));
  CHECK(word.state == BellState::kAwake);
}

TEST_CASE("bell takes the far future as a deadline") {
  BellWord word{};
  Bell bell(word);
  bell.Enter();
  std::atomic<bool> flag{false};
  std::jthread ringer([&] {
    while (word.state != BellState::kAsleep) {
      std::this_thread::yield();
    }
    flag.store(true, std::memory_order_release);
    Bell(word).Ring();
  });
  CHECK(bell.Wait(kNone, Clock::time_point::max(), [&] { return flag.load(); }));
}

TEST_CASE("bell goes on sleeping over rings that change nothing") {
  BellWord word{};
  Bell bell(word);
  bell.Enter();
  std::atomic<bool> stop{false};
  std::jthread ringer([&] {
    while (!stop) {
      Bell(word).Ring();
      std::this_thread::yield();
    }
  });
  CHECK_FALSE(bell.Wait(kNone, In(std::chrono::milliseconds(30)), [] { return false; }));
  stop = true;
}

TEST_CASE("bell loses no wake-up between two ranks that wait for each other") {
  // A lost one shows as a deadline that passes.
  const Patience patience = GENERATE(Patience{0, 0}, Patience{3, 1}, Patience{0, 3});
  BellWord words[2] = {};
  std::atomic<uint64_t> turns[2] = {};
  const auto results = OnRanks<bool>(2, [&](int rank) {
    Bell own(words[rank]);
    own.Enter();
    bool in_time = true;
    for (uint64_t turn = 1; in_time && turn <= 2'000; ++turn) {
      turns[rank].store(turn, std::memory_order_release);
      Bell(words[1 - rank]).Ring();
      in_time = own.Wait(patience, In(std::chrono::seconds(20)), [&] {
        return turns[1 - rank].load(std::memory_order_acquire) >= turn;
      });
    }
    own.Leave();
    return in_time;
  });
  CHECK(results == std::vector<bool>{true, true});
}

TEST_CASE("bell wakes across processes") {
  auto memory = MakeMemory(SegmentBytes(2));
  const pid_t child = ::fork();
  const int rank = child == 0 ? 1 : 0;
  const auto segment = std::move(Segment::Map(memory, 2).value());
  auto* turns = reinterpret_cast<std::atomic<uint64_t>*>(segment->data(0));
  Bell own(segment->bell(rank));
  own.Enter();
  bool in_time = true;
  for (uint64_t turn = 1; in_time && turn <= 1'000; ++turn) {
    turns[rank].store(turn, std::memory_order_release);
    Bell(segment->bell(1 - rank)).Ring();
    in_time = own.Wait(kNone, In(std::chrono::seconds(20)), [&] {
      return turns[1 - rank].load(std::memory_order_acquire) >= turn;
    });
  }
  if (child == 0) {
    ::_exit(in_time ? 0 : 1);
  }
  CHECK(in_time);
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("bell calls once while nobody is there, and never while somebody looks") {
  BellWord word{};
  Bell bell(word);
  CHECK(bell.RingOrCall());
  CHECK_FALSE(bell.RingOrCall());
  bell.Enter();
  CHECK_FALSE(bell.RingOrCall());
  bell.Leave();
  CHECK(bell.RingOrCall());
}

TEST_CASE("bell lets no message lie between looking and leaving") {
  // The driver leaves whenever it sees nothing; whoever is called drives again.
  BellWord word{};
  Bell bell(word);
  constexpr uint64_t kMessages = 10'000;
  std::atomic<uint64_t> sent{0};
  std::atomic<uint64_t> calls{0};
  std::jthread writer([&] {
    Bell other(word);
    for (uint64_t message = 1; message <= kMessages; ++message) {
      sent.store(message, std::memory_order_release);
      if (other.RingOrCall()) {
        calls.fetch_add(1, std::memory_order_acq_rel);
      }
    }
  });
  uint64_t seen = 0;
  uint64_t answered = 0;
  const auto deadline = In(std::chrono::seconds(60));
  while (seen < kMessages && Clock::now() < deadline) {
    bell.Enter();
    seen = sent.load(std::memory_order_acquire);
    bell.Leave();
    if (sent.load(std::memory_order_acquire) != seen) {
      continue;  // The last look.
    }
    // Anything from here on has to come with a call.
    while (seen < kMessages && calls.load(std::memory_order_acquire) == answered &&
           Clock::now() < deadline) {
      std::this_thread::yield();
    }
    answered = calls.load(std::memory_order_acquire);
  }
  CHECK(seen == kMessages);
}

}  // namespace
}  // namespace muster::worker
