#include "common/loop.h"

#include <sys/epoll.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/process.h"

namespace muster {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Ends a test that would wait for ever: the callback that it waits for never came.
void FailAfter(Loop& loop, Duration limit) {
  loop.After(limit, [&loop] {
    loop.Stop();
    FAIL_CHECK("the loop was not stopped in time");
  });
}

TEST_CASE("loop runs what was posted before it ran, in order") {
  Loop loop;
  std::vector<int> order;
  loop.Post([&] { order.push_back(1); });
  loop.Post([&] { order.push_back(2); });
  loop.Post([&] { order.push_back(3); });
  loop.Stop();
  loop.Run();
  CHECK(order == std::vector<int>{1, 2, 3});
}

TEST_CASE("loop runs what other threads post, on its own thread") {
  Loop loop;
  FailAfter(loop, seconds(20));
  CHECK_FALSE(loop.OnLoopThread());
  constexpr int kThreads = 4;
  constexpr int kPosts = 200;
  int count = 0;
  bool always_on_loop = true;
  std::vector<std::jthread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kPosts; ++i) {
        loop.Post([&] {
          always_on_loop = always_on_loop && loop.OnLoopThread();
          if (++count == kThreads * kPosts) {
            loop.Stop();
          }
        });
      }
    });
  }
  loop.Run();
  CHECK(count == kThreads * kPosts);
  CHECK(always_on_loop);
}

TEST_CASE("loop may be posted to from inside a posted closure") {
  Loop loop;
  FailAfter(loop, seconds(20));
  bool inner = false;
  loop.Post([&] {
    loop.Post([&] {
      inner = true;
      loop.Stop();
    });
  });
  loop.Run();
  CHECK(inner);
}

TEST_CASE("loop drops what is posted after it has returned") {
  bool ran = false;
  {
    Loop loop;
    loop.Stop();
    loop.Run();
    loop.Post([&] { ran = true; });
  }
  CHECK_FALSE(ran);
}

TEST_CASE("loop fires timers in the order of their time, those of one time as armed") {
  Loop loop;
  FailAfter(loop, seconds(20));
  std::string order;
  loop.After(milliseconds(20), [&] {
    order += 'c';
    loop.Stop();
  });
  loop.After(microseconds(1), [&] { order += 'a'; });
  loop.After(milliseconds(2), [&] { order += 'b'; });
  loop.Run();
  CHECK(order == "abc");
}

TEST_CASE("loop fires no timer early") {
  Loop loop;
  FailAfter(loop, seconds(20));
  const Instant start = loop.Now();
  Instant fired;
  loop.After(microseconds(1500), [&] {
    fired = loop.Now();
    loop.Stop();
  });
  loop.Run();
  CHECK(fired - start >= microseconds(1500));
}

TEST_CASE("loop fires no cancelled timer") {
  Loop loop;
  FailAfter(loop, seconds(20));
  bool fired = false;
  Loop::TimerId second;
  const Loop::TimerId first = loop.After(milliseconds(1), [&] { fired = true; });
  // Both are due in the same round; the earlier one cancels the later one.
  loop.After(microseconds(1), [&] { loop.Cancel(second); });
  second = loop.After(microseconds(2), [&] { fired = true; });
  loop.Cancel(first);
  loop.Cancel(first);
  loop.Cancel(Loop::TimerId{});
  loop.After(milliseconds(5), [&] { loop.Stop(); });
  loop.Run();
  CHECK_FALSE(fired);
}

TEST_CASE("loop lets a timer arm the next one") {
  Loop loop;
  FailAfter(loop, seconds(20));
  int rounds = 0;
  std::function<void()> again = [&] {
    if (++rounds == 5) {
      loop.Stop();
    } else {
      loop.After(Duration::zero(), again);
    }
  };
  loop.After(Duration::zero(), again);
  loop.Run();
  CHECK(rounds == 5);
}

TEST_CASE("loop calls back for a readable descriptor until it is unwatched") {
  Loop loop;
  FailAfter(loop, seconds(20));
  Pipe pipe = std::move(MakePipe()).value();
  REQUIRE(::write(pipe.write.get(), "ab", 2) == 2);
  std::string got;
  loop.Watch(pipe.read.get(), EPOLLIN, [&](uint32_t events) {
    CHECK((events & EPOLLIN) != 0);
    char c = 0;
    REQUIRE(::read(pipe.read.get(), &c, 1) == 1);
    got += c;
    if (got.size() == 2) {
      loop.Unwatch(pipe.read.get());  // Inside its own callback.
      REQUIRE(::write(pipe.write.get(), "c", 1) == 1);
      loop.After(milliseconds(5), [&] { loop.Stop(); });
    }
  });
  loop.Run();
  CHECK(got == "ab");
}

TEST_CASE("loop tells the end of a pipe") {
  Loop loop;
  FailAfter(loop, seconds(20));
  Pipe pipe = std::move(MakePipe()).value();
  uint32_t seen = 0;
  loop.Watch(pipe.read.get(), EPOLLIN, [&](uint32_t events) {
    seen = events;
    loop.Unwatch(pipe.read.get());
    loop.Stop();
  });
  loop.Post([&] { pipe.write.Reset(); });
  loop.Run();
  CHECK((seen & EPOLLHUP) != 0);
}

TEST_CASE("loop watches for what Modify says") {
  Loop loop;
  FailAfter(loop, seconds(20));
  Pipe pipe = std::move(MakePipe()).value();
  bool writable = false;
  loop.Watch(pipe.write.get(), 0, [&](uint32_t events) {
    writable = (events & EPOLLOUT) != 0;
    loop.Unwatch(pipe.write.get());
    loop.Stop();
  });
  loop.Post([&] { loop.Modify(pipe.write.get(), EPOLLOUT); });
  loop.Run();
  CHECK(writable);
}

TEST_CASE("loop skips a descriptor that was unwatched earlier in the round") {
  Loop loop;
  FailAfter(loop, seconds(20));
  Pipe first = std::move(MakePipe()).value();
  Pipe second = std::move(MakePipe()).value();
  REQUIRE(::write(first.write.get(), "x", 1) == 1);
  REQUIRE(::write(second.write.get(), "x", 1) == 1);
  int calls = 0;
  const auto unwatch_both = [&](uint32_t) {
    ++calls;
    loop.Unwatch(first.read.get());
    loop.Unwatch(second.read.get());
    loop.After(milliseconds(2), [&] { loop.Stop(); });
  };
  loop.Watch(first.read.get(), EPOLLIN, unwatch_both);
  loop.Watch(second.read.get(), EPOLLIN, unwatch_both);
  loop.Run();
  CHECK(calls == 1);
}

// The first callback closes the other's descriptor and opens another file under the same number.
TEST_CASE("loop takes no event of the round for a descriptor that has got its number anew") {
  Loop loop;
  FailAfter(loop, seconds(20));
  Pipe pipes[2] = {std::move(MakePipe()).value(), std::move(MakePipe()).value()};
  const Pipe silent = std::move(MakePipe()).value();
  int calls = 0;
  int wrong_calls = 0;
  for (int i = 0; i < 2; ++i) {
    REQUIRE(::write(pipes[i].write.get(), "x", 1) == 1);
    const int other = pipes[1 - i].read.get();
    loop.Watch(pipes[i].read.get(), EPOLLIN, [&, i, other](uint32_t) {
      ++calls;
      loop.Unwatch(pipes[i].read.get());
      loop.Unwatch(other);
      REQUIRE(::dup2(silent.read.get(), other) == other);
      loop.Watch(other, EPOLLIN, [&](uint32_t) { ++wrong_calls; });
      loop.After(milliseconds(2), [&] { loop.Stop(); });
    });
  }
  loop.Run();
  CHECK(calls == 1);
  CHECK(wrong_calls == 0);
}

}  // namespace
}  // namespace muster
