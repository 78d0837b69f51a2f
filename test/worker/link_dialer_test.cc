// What the dialer makes of addresses that lead nowhere; see links_test.cc for dialer and acceptor
// together.

#include "worker/link_dialer.h"

#include <catch2/catch.hpp>

#include "test/worker/links_fixture.h"

namespace muster::worker {

using namespace test;  // NOLINT(google-build-using-namespace): one fixture, several files.

namespace {

using Addresses = std::vector<std::string>;
using Catch::Matchers::Contains;
using std::chrono::milliseconds;

// Short ones, so that the tests wait for little; the real ones differ in nothing else.
constexpr LinkDialer::Limits kShort{milliseconds(20), milliseconds(60)};

/// A dialer with what it said.
struct Dialled {
  Bench& bench;
  std::optional<PrivateFd> link;
  std::vector<LinkDialer::Unreachable> reports;
  LinkDialer dialer;

  Dialled(Bench& on, Addresses addresses, LinkId id = kLink)
      : bench(on), dialer(bench.loop, id, "key", std::move(addresses), Callbacks(), kShort) {
    dialer.Start();
  }
  LinkDialer::Callbacks Callbacks() {
    return {[this](PrivateFd fd) { link = std::move(fd); },
            [this](const LinkDialer::Unreachable& why) { reports.push_back(why); }};
  }
};

/// Connection requests are accepted, by the kernel, and nothing follows.
struct SilentListener {
  PrivateFd fd = ListenOnLoopback().value();
  std::string address = LocalAddress(fd.get()).value();
};

/// Its queue is full, so that the kernel drops connection requests.
struct BlackHole : SilentListener {
  std::vector<PrivateFd> waiting;
  BlackHole() {
    REQUIRE(::listen(fd.get(), 0) == 0);
    for (int i = 0; i < 4; ++i) {
      waiting.push_back(Connect(address));
    }
  }
};

std::string ClosedPort(Bench& bench) {
  std::string address;
  { const auto gone = bench.NewAcceptor(address); }
  return address;
}

}  // namespace

TEST_CASE("dialer goes to routable addresses only, if a peer has any") {
  CHECK(WorthDialling({"127.0.0.1:1", "10.0.0.2:2", "[fd00::2]:3"}) ==
        Addresses{"10.0.0.2:2", "[fd00::2]:3"});
  CHECK(WorthDialling({"127.0.0.1:1", "[::1]:2"}) == Addresses{"127.0.0.1:1", "[::1]:2"});
  CHECK(WorthDialling({}).empty());
}

TEST_CASE("dialer names link, address, reason, time and limit of a closed port at once") {
  Bench bench;
  const std::string closed = ClosedPort(bench);
  Dialled dialled(bench, {closed}, {{7}, 3, 1, LinkKind::kData});
  REQUIRE(bench.RunUntil([&] { return !dialled.reports.empty(); }));
  CHECK(dialled.reports[0].refused);
  CHECK(dialled.reports[0].evidence ==
        "rank 3 has no data link to rank 1 after 0.0 s (limit 0.1 s): " + closed +
            ": Connection refused");
}

TEST_CASE("dialer reports a peer that swallows connection requests, once its patience is over") {
  Bench bench;
  const BlackHole hole;
  const Instant start = bench.loop.Now();
  Dialled dialled(bench, {hole.address});
  REQUIRE(bench.RunUntil([&] { return !dialled.reports.empty(); }));
  CHECK(bench.loop.Now() - start >= kShort.patience);
  CHECK_FALSE(dialled.reports[0].refused);
  CHECK_THAT(dialled.reports[0].evidence,
             Contains("rank 1 has no control link to rank 0 after 0.") &&
                 Contains("(limit 0.1 s)") &&
                 Contains(hole.address + ": Connection timed out after 0.0 s"));
  CHECK_FALSE(bench.RunUntil([&] { return dialled.reports.size() > 1; }, milliseconds(150)));
}

TEST_CASE("dialer tells a peer that is connected and does not answer from one that is not") {
  Bench bench;
  const SilentListener silent;
  Dialled dialled(bench, {silent.address});
  REQUIRE(bench.RunUntil([&] { return !dialled.reports.empty(); }));
  CHECK_THAT(dialled.reports[0].evidence,
             Contains(silent.address + ": connected, but no answer to the handshake"));
}

TEST_CASE("dialer does not call a peer dead while one of its addresses is silent") {
  Bench bench;
  const SilentListener silent;
  const Instant start = bench.loop.Now();
  Dialled dialled(bench, {ClosedPort(bench), silent.address});
  REQUIRE(bench.RunUntil([&] { return !dialled.reports.empty(); }));
  CHECK(bench.loop.Now() - start >= kShort.patience);
  CHECK_FALSE(dialled.reports[0].refused);
  CHECK_THAT(dialled.reports[0].evidence,
             Contains("Connection refused; ") && Contains("no answer to the handshake"));
}

TEST_CASE("dialer does not wait between the addresses of a round") {
  Bench bench;
  bench.acceptor->Expect({1}, 0, "key", [](LinkId, PrivateFd) {});
  Addresses addresses(30, ClosedPort(bench));
  addresses.push_back(bench.address);
  Dialled dialled(bench, addresses);
  REQUIRE(bench.RunUntil([&] { return dialled.link.has_value(); }));
  CHECK(dialled.reports.empty());  // Within the first round.
}

TEST_CASE("dialer tries many silent addresses no longer than four") {
  Bench bench;
  const SilentListener silent;
  bench.acceptor->Expect({1}, 0, "key", [](LinkId, PrivateFd) {});
  Addresses addresses(40, silent.address);
  addresses.push_back(bench.address);
  const Instant start = bench.loop.Now();
  Dialled dialled(bench, addresses);
  REQUIRE(bench.RunUntil([&] { return dialled.link.has_value(); }));
  CHECK(bench.loop.Now() - start < 20 * kShort.address);  // Not 40 times.
}

TEST_CASE("dialer goes on after its report, and may be destroyed in it") {
  Bench bench;
  std::optional<PrivateFd> link;
  std::unique_ptr<LinkDialer> dialer;
  bool reported = false;
  LinkDialer::Callbacks callbacks;
  callbacks.on_link = [](PrivateFd) { FAIL("nobody listens"); };
  callbacks.on_unreachable = [&](const LinkDialer::Unreachable&) {
    reported = true;
    dialer.reset();
  };
  dialer = std::make_unique<LinkDialer>(
      bench.loop, kLink, "key", Addresses{ClosedPort(bench)}, std::move(callbacks), kShort);
  dialer->Start();
  REQUIRE(bench.RunUntil([&] { return reported; }));
}

}  // namespace muster::worker
