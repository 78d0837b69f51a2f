#include "launcher/agent/output_forwarder.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <future>

#include "common/process.h"
#include "launcher/agent/driver_link.h"
#include "test/launcher/agent/agent_fixture.h"

namespace muster::launcher {
namespace {

constexpr size_t kPipeBytes = 64 * 1024;

struct Setup {
  FakeDriver driver{"secret"};
  OutputForwarder forwarder;
  Pipe out = MakePipe().value();
  Pipe err = MakePipe().value();

  explicit Setup(int32_t rank = -1, bool resumable = false)
      : forwarder({"secret", "session", "host-a", resumable}) {
    forwarder.Connect(MakeDriverChannel(driver.address()).value());
    forwarder.Add({{7}, 3, rank}, std::move(out.read), std::move(err.read));
  }
  void Write(const std::string& text) const {
    REQUIRE(::write(out.write.get(), text.data(), text.size()) ==
            static_cast<ssize_t>(text.size()));
  }
  void Flush() {
    std::promise<void> flushed;
    forwarder.Flush(std::chrono::seconds(10), [&] { flushed.set_value(); });
    REQUIRE(flushed.get_future().wait_for(kHangBound) == std::future_status::ready);
  }
};

}  // namespace

TEST_CASE("output forwarder tags whole lines with where they come from") {
  Setup setup;
  setup.Write("before\nhal");
  REQUIRE(setup.driver.AwaitOutput("before\n"));
  setup.forwarder.SetRanks({{{7}, 4}, {{8}, 5}});
  setup.Write("f a line\n");
  REQUIRE(setup.driver.AwaitOutput("half a line\n"));
  const std::vector<v1::OutputChunk> chunks = setup.driver.chunks();
  REQUIRE(chunks.size() == 2);
  CHECK(chunks[0].lines() == "before\n");
  CHECK(chunks[0].rank() == -1);
  CHECK(chunks[1].rank() == 4);
  CHECK(chunks[1].slot() == 3);
  CHECK(chunks[1].incarnation() == 7);
  CHECK(chunks[1].host() == "host-a");
  CHECK_FALSE(chunks[1].is_stderr());
}

TEST_CASE("output forwarder tags lines with the first rank until there is another") {
  Setup setup(2);
  setup.Write("before\n");
  REQUIRE(setup.driver.AwaitOutput("before\n"));
  setup.forwarder.SetRanks({{{7}, 4}});
  setup.Write("after\n");
  REQUIRE(setup.driver.AwaitOutput("after\n"));
  const std::vector<v1::OutputChunk> chunks = setup.driver.chunks();
  REQUIRE(chunks.size() == 2);
  CHECK(chunks[0].rank() == 2);
  CHECK(chunks[1].rank() == 4);
}

TEST_CASE("output forwarder completes a last line at the end of the pipe") {
  Setup setup;
  REQUIRE(::write(setup.err.write.get(), "oops", 4) == 4);
  setup.err.write.Reset();
  REQUIRE(setup.driver.AwaitOutput("oops\n"));
  CHECK(setup.driver.chunks().back().is_stderr());
}

TEST_CASE("output forwarder flushes what was written though a pipe stays open") {
  Setup setup;
  setup.Write("all\nof\nthis");
  setup.Flush();
  CHECK(setup.driver.output() == "all\nof\nthis\n");
}

TEST_CASE("output forwarder stops reading when the driver does not take output") {
  Setup setup;
  setup.driver.HoldOutput(true);
  ::fcntl(setup.out.write.get(), F_SETFL, O_NONBLOCK);
  const std::string line(99, 'x');
  std::string lines;
  while (lines.size() < kPipeBytes / 2) {
    lines += line + "\n";
  }
  size_t written = 0;
  bool blocked = false;
  // What gRPC's flow control lets through is not ours to bound, but it is far below this.
  while (!blocked && written < (64U << 20)) {
    pollfd entry{setup.out.write.get(), POLLOUT, 0};
    blocked = ::poll(&entry, 1, 1000) == 0;
    if (const ssize_t got = ::write(setup.out.write.get(), lines.data(), lines.size()); got > 0) {
      written += static_cast<size_t>(got);
    }
  }
  CHECK(blocked);
  setup.driver.HoldOutput(false);
  setup.Flush();
  CHECK(setup.driver.output_bytes() >= written);
}

// Nobody brings another channel: the session's own stream is well.
TEST_CASE("output forwarder goes on by itself when its stream alone breaks, if it may") {
  Setup setup(2, true);
  setup.Write("before\n");
  REQUIRE(setup.driver.AwaitOutput("before\n"));
  setup.driver.BreakOutput();
  setup.Write("meanwhile\n");
  REQUIRE(setup.driver.AwaitOutput("meanwhile\n"));
  setup.Write("after\n");
  REQUIRE(setup.driver.AwaitOutput("after\n"));
  setup.Flush();
  CHECK(setup.driver.output() == "before\nmeanwhile\nafter\n");
}

TEST_CASE("output forwarder ends a flush at its deadline") {
  Setup setup;
  setup.driver.HoldOutput(true);
  setup.Write("never read\n");
  std::promise<void> flushed;
  setup.forwarder.Flush(std::chrono::milliseconds(50), [&] { flushed.set_value(); });
  CHECK(flushed.get_future().wait_for(kHangBound) == std::future_status::ready);
}

TEST_CASE("a flood of output delays no order") {
  AgentUnderTest agent({"flood"});
  agent.driver().HoldOutput(true);
  agent.Spawn(1);
  agent.driver().Await(v1::AgentReport::kWorkerStarted, 1);
  for (uint64_t incarnation = 2; incarnation < 6; ++incarnation) {
    agent.Spawn(incarnation);
    agent.Kill(incarnation, true);
    CHECK(
        agent.driver().Await(v1::AgentReport::kWorkerExited, incarnation).worker_exited().code() ==
        137);
  }
  agent.driver().HoldOutput(false);
  agent.Stop();
  CHECK(agent.AwaitExit() == 0);
}

}  // namespace muster::launcher
