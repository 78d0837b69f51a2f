// Dialer and acceptor against each other, and against strangers, over real sockets on one loop.

#include <catch2/catch.hpp>
#include <optional>

#include "test/worker/links_fixture.h"
#include "worker/control_link.h"

namespace muster::worker {

using namespace test;  // NOLINT(google-build-using-namespace): one fixture, several files.

TEST_CASE("link is made between holders of the key, with its identity") {
  Bench bench;
  std::optional<PrivateFd> dialled;
  std::optional<PrivateFd> accepted;
  bench.acceptor->Expect({1}, 0, "key", [&](LinkId id, PrivateFd fd) {
    CHECK(id == kLink);
    accepted = std::move(fd);
  });
  LinkDialer dialer(bench.loop, kLink, "key", {bench.address}, Into(dialled));
  dialer.Start();
  REQUIRE(bench.RunUntil([&] { return dialled && accepted; }));
  CHECK(WriteSome(dialled->get(), "x", 1) == 1);
  CHECK(bench.acceptor->guest_count() == 0);
}

TEST_CASE("link waits for a peer that has not heard of the generation yet") {
  Bench bench;
  std::optional<PrivateFd> dialled;
  LinkDialer dialer(bench.loop, kLink, "key", {bench.address}, Into(dialled));
  dialer.Start();
  bool accepted = false;
  bench.loop.After(std::chrono::milliseconds(50), [&] {
    CHECK(bench.acceptor->guest_count() == 1);
    bench.acceptor->Expect({1}, 0, "key", [&](LinkId, PrivateFd) { accepted = true; });
  });
  const Instant start = bench.loop.Now();
  REQUIRE(bench.RunUntil([&] { return dialled.has_value() && accepted; }));
  CHECK(bench.loop.Now() - start < std::chrono::milliseconds(900));  // Parked, not retried.
}

TEST_CASE("link of another generation, rank or key is not made") {
  Bench bench;
  bench.acceptor->Expect({2}, 0, "key", [](LinkId, PrivateFd) { FAIL("a link was accepted"); });
  const std::pair<LinkId, const char*> wrong[] = {
      {{{1}, 1, 0, LinkKind::kControl}, "key"},   // An older generation.
      {{{2}, 1, 3, LinkKind::kControl}, "key"},   // Another rank's.
      {{{2}, 1, 0, LinkKind::kData}, "not key"},  // No member.
  };
  for (const auto& [id, key] : wrong) {
    std::optional<PrivateFd> dialled;
    LinkDialer dialer(bench.loop, id, key, {bench.address}, Into(dialled));
    dialer.Start();
    CHECK_FALSE(
        bench.RunUntil([&] { return dialled.has_value(); }, std::chrono::milliseconds(100)));
  }
}

TEST_CASE("strangers on the listener cost a second of a socket and nothing else") {
  Bench bench;
  std::optional<PrivateFd> dialled;
  bool accepted = false;
  bench.acceptor->Expect({1}, 0, "key", [&](LinkId, PrivateFd) { accepted = true; });
  std::vector<PrivateFd> strangers;
  for (int i = 0; i < 50; ++i) {
    strangers.push_back(Connect(bench.address));
  }
  const std::string junk(64, 'j');
  WriteSome(strangers[0].get(), junk.data(), junk.size());
  strangers[1].Reset();
  LinkDialer dialer(bench.loop, kLink, "key", {bench.address}, Into(dialled));
  dialer.Start();
  REQUIRE(bench.RunUntil([&] { return dialled.has_value() && accepted; },
                         std::chrono::milliseconds(900)));
  REQUIRE(bench.RunUntil([&] { return bench.acceptor->guest_count() == 0; }));
  CHECK(IsClosed(strangers[2].get()));
}

TEST_CASE("dialer tells once that nobody listens, and tries on") {
  Bench bench;
  std::string free_address;
  { const auto gone = bench.NewAcceptor(free_address); }
  std::optional<PrivateFd> dialled;
  int refusals = 0;
  LinkDialer::Callbacks callbacks;
  callbacks.on_link = [&](PrivateFd fd) { dialled = std::move(fd); };
  callbacks.on_unreachable = [&](const LinkDialer::Unreachable& why) {
    CHECK(why.refused);
    ++refusals;
  };
  LinkDialer dialer(bench.loop, kLink, "key", {free_address}, std::move(callbacks));
  dialer.Start();
  REQUIRE(bench.RunUntil([&] { return refusals > 0; }));
  CHECK_FALSE(bench.RunUntil([&] { return refusals > 1; }, std::chrono::milliseconds(100)));
}

TEST_CASE("dialer finds the address that answers among several") {
  Bench bench;
  std::string dead;
  { const auto gone = bench.NewAcceptor(dead); }
  std::optional<PrivateFd> dialled;
  std::string unreachable;
  bench.acceptor->Expect({1}, 0, "key", [](LinkId, PrivateFd) {});
  LinkDialer dialer(
      bench.loop, kLink, "key", {dead, "no address", bench.address}, Into(dialled, &unreachable));
  dialer.Start();
  REQUIRE(bench.RunUntil([&] { return dialled.has_value(); }));
  CHECK(unreachable.empty());
}

TEST_CASE("dialer gives up on a silent listener after a second and tries again") {
  Bench bench;
  PrivateFd silent = ListenOnLoopback().value();
  std::optional<PrivateFd> dialled;
  bench.acceptor->Expect({1}, 0, "key", [](LinkId, PrivateFd) {});
  LinkDialer dialer(
      bench.loop, kLink, "key", {LocalAddress(silent.get()).value(), bench.address}, Into(dialled));
  dialer.Start();
  REQUIRE(bench.RunUntil([&] { return dialled.has_value(); }));
}

TEST_CASE("dialer may be destroyed by its own callback") {
  Bench bench;
  std::unique_ptr<LinkDialer> dialer;
  bool linked = false;
  bench.acceptor->Expect({1}, 0, "key", [](LinkId, PrivateFd) {});
  LinkDialer::Callbacks callbacks;
  callbacks.on_link = [&](PrivateFd) {
    linked = true;
    dialer.reset();
  };
  dialer = std::make_unique<LinkDialer>(
      bench.loop, kLink, "key", std::vector{bench.address}, std::move(callbacks));
  dialer->Start();
  REQUIRE(bench.RunUntil([&] { return linked; }));
}

// ---------------------------------------------------------------- control links

namespace {

/// A control link and the raw socket at its other end.
struct Wire : Bench {
  std::unique_ptr<ControlLink> link;
  PrivateFd peer;
  std::vector<std::string> frames;
  std::string broken;

  Wire() {
    PrivateFd listener = ListenOnLoopback().value();
    peer = Connect(LocalAddress(listener.get()).value());
    link = std::make_unique<ControlLink>(loop, Accept(listener.get()).value());
  }
  ControlLink::Callbacks Callbacks() {
    ControlLink::Callbacks callbacks;
    callbacks.on_frame = [this](std::string_view frame) { frames.emplace_back(frame); };
    callbacks.on_broken = [this](const std::string& reason) { broken = reason; };
    return callbacks;
  }
  void Write(const std::string& bytes) {
    REQUIRE(WriteSome(peer.get(), bytes.data(), bytes.size()) ==
            static_cast<ssize_t>(bytes.size()));
  }
};

std::string Framed(const std::string& text) {
  const auto size = static_cast<uint32_t>(text.size());
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + text;
}

}  // namespace

TEST_CASE("control link delivers whole frames, however the bytes arrive") {
  Wire wire;
  wire.link->Start(wire.Callbacks());
  wire.Write(Framed("one") + Framed("") + Framed("three").substr(0, 5));
  REQUIRE(wire.RunUntil([&] { return wire.frames.size() == 2; }));
  wire.Write(Framed("three").substr(5));
  REQUIRE(wire.RunUntil([&] { return wire.frames.size() == 3; }));
  CHECK(wire.frames == std::vector<std::string>{"one", "", "three"});
  CHECK(wire.broken.empty());
}

TEST_CASE("control link holds frames back while it is paused, and loses none") {
  Wire wire;
  ControlLink::Callbacks first = wire.Callbacks();
  first.on_frame = [&](std::string_view frame) {
    wire.frames.emplace_back(frame);
    wire.link->Pause();
  };
  wire.link->Start(std::move(first));
  wire.Write(Framed("one") + Framed("two"));
  REQUIRE(wire.RunUntil([&] { return !wire.frames.empty(); }));
  CHECK(wire.frames.size() == 1);
  wire.link->Start(wire.Callbacks());
  CHECK(wire.frames.size() == 2);
}

TEST_CASE("control link notices the end of its peer, also while paused") {
  const bool paused = GENERATE(false, true);
  Wire wire;
  wire.link->Start(wire.Callbacks());
  if (paused) {
    wire.link->Pause();
  }
  wire.peer.Reset();
  REQUIRE(wire.RunUntil([&] { return !wire.broken.empty(); }));
  CHECK(wire.link->closed());
}

TEST_CASE("control link breaks on an announced giant") {
  Wire wire;
  wire.link->Start(wire.Callbacks());
  wire.Write(std::string("\xff\xff\xff\x7f", 4));
  REQUIRE(wire.RunUntil([&] { return !wire.broken.empty(); }));
}

TEST_CASE("control link breaks when its peer does not read") {
  Wire wire;
  wire.link->Start(wire.Callbacks());
  const std::string frame(8u << 20, 'x');
  for (int i = 0; i < 16; ++i) {
    wire.link->Send(frame);
  }
  REQUIRE(wire.RunUntil([&] { return !wire.broken.empty(); }));
}

TEST_CASE("control link sends what the kernel does not take at once") {
  Wire wire;
  wire.link->Start(wire.Callbacks());
  const std::string frame(8u << 20, 'x');
  wire.link->Send(frame);
  CHECK_FALSE(wire.link->flushed());
  size_t received = 0;
  REQUIRE(wire.RunUntil([&] {
    std::string buffer(1u << 20, '\0');
    ssize_t count = 0;
    while ((count = ReadSome(wire.peer.get(), buffer.data(), buffer.size())) > 0) {
      received += static_cast<size_t>(count);
    }
    return received == frame.size() + 4 && wire.link->flushed();
  }));
}

}  // namespace muster::worker
