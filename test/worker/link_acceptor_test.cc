// The acceptor's addresses, and what strangers can do to it; see links_test.cc for dialer and
// acceptor together.

#include "worker/link_acceptor.h"

#include <catch2/catch.hpp>

#include "common/random.h"
#include "test/worker/links_fixture.h"

namespace muster::worker {

using namespace test;  // NOLINT(google-build-using-namespace): one fixture, several files.

namespace {

using Catch::Matchers::Contains;
using std::chrono::milliseconds;

void SendAll(const PrivateFd& fd, const std::string& bytes) {
  REQUIRE(WriteSome(fd.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
}

/// Runs the loop until `size` bytes have come; fewer if the other side has closed.
std::string Receive(Bench& bench, const PrivateFd& fd, size_t size) {
  std::string bytes;
  bool closed = false;
  REQUIRE(bench.RunUntil([&] {
    char buffer[256];
    const ssize_t count = ReadSome(fd.get(), buffer, std::min(sizeof buffer, size - bytes.size()));
    closed = count < 0;
    bytes.append(buffer, static_cast<size_t>(std::max<ssize_t>(count, 0)));
    return closed || bytes.size() == size;
  }));
  return bytes;
}

bool CanBeLinked(Bench& bench, const std::string& address, Duration patience) {
  std::optional<PrivateFd> dialled;
  LinkDialer dialer(bench.loop, kLink, "key", {address}, Into(dialled));
  dialer.Start();
  return bench.RunUntil([&] { return dialled.has_value(); }, patience);
}

}  // namespace

TEST_CASE("acceptor listens at several addresses, at each once") {
  Bench bench;
  REQUIRE(bench.acceptor->ListenAt("127.0.0.9", {}).ok());
  REQUIRE(bench.acceptor->ListenAt("127.0.0.9", {}).ok());
  REQUIRE(bench.acceptor->ListenAt("127.0.0.1", {}).ok());
  REQUIRE(bench.acceptor->addresses().size() == 2);
  CHECK_THAT(bench.acceptor->addresses()[1], Catch::StartsWith("127.0.0.9:"));
  bench.acceptor->Expect({1}, 0, "key", [](LinkId, PrivateFd) {});
  for (const std::string& address : bench.acceptor->addresses()) {
    CHECK(CanBeLinked(bench, address, kPatience));
  }
}

TEST_CASE("acceptor takes its ports from the range and says when there is none") {
  Bench bench;
  const uint16_t port = SplitAddress(bench.address).value().port;  // Taken, at 127.0.0.1.
  CHECK_THAT(LinkAcceptor(bench.loop).Listen({{}, {port, port}}).message(),
             Contains("port " + std::to_string(port) + " on 127.0.0.1 is in use"));
  LinkAcceptor elsewhere(bench.loop);
  REQUIRE(elsewhere.Listen({{"127.0.0.8", "127.0.0.9"}, {port, port}}).ok());
  CHECK(elsewhere.addresses() ==
        std::vector<std::string>{JoinAddress("127.0.0.8", port), JoinAddress("127.0.0.9", port)});
}

TEST_CASE("acceptor says which address is not one of this machine") {
  Bench bench;
  CHECK_THAT(bench.acceptor->ListenAt("198.51.100.1", {41000, 41001}).message(),
             Contains("198.51.100.1 on the ports 41000-41001") && Contains("assign"));
}

TEST_CASE("acceptor takes links while many clients say nothing, or nonsense, or half of it") {
  Bench bench;
  bench.acceptor->Expect({1}, 0, "key", [](LinkId, PrivateFd) {});
  std::vector<PrivateFd> strangers;
  const std::string hello = HandshakeInitiator("wrong", kLink, FreshNonce()).Hello();
  Random random(3);
  for (int i = 0; i < 400; ++i) {
    strangers.push_back(Connect(bench.address));
    std::string bytes;
    switch (i % 4) {
      case 1:
        for (int j = 0; j < 64; ++j) {
          bytes.push_back(static_cast<char>(random.Next()));
        }
        break;
      case 2:
        bytes = hello;
        break;
      case 3:
        bytes = hello.substr(0, i % hello.size());
        break;
      default:
        break;
    }
    WriteSome(strangers.back().get(), bytes.data(), bytes.size());
  }
  CHECK(CanBeLinked(bench, bench.address, milliseconds(900)));
  CHECK(bench.acceptor->guest_count() <= LinkAcceptor::GuestsMax(1u << 20));
  CHECK(bench.RunUntil([&] { return bench.acceptor->guest_count() == 0; }));
  CHECK(IsClosed(strangers.back().get()));
}

TEST_CASE("acceptor bounds strangers far below the limit of open files") {
  CHECK(LinkAcceptor::GuestsMax(1024) == 256);
  CHECK(LinkAcceptor::GuestsMax(256) == 64);
  CHECK(LinkAcceptor::GuestsMax(0) == 64);
  CHECK(LinkAcceptor::GuestsMax(UINT64_MAX) == 1024);
}

TEST_CASE("acceptor lets the oldest stranger at the same address go when there are too many") {
  Bench bench;
  REQUIRE(bench.acceptor->ListenAt("127.0.0.9", {}).ok());
  LinkAcceptor small(bench.loop, 2);
  REQUIRE(small.ListenAt("127.0.0.1", {}).ok());
  REQUIRE(small.ListenAt("127.0.0.9", {}).ok());
  const PrivateFd elsewhere = Connect(small.addresses()[1]);
  std::vector<PrivateFd> strangers;
  for (int i = 0; i < 3; ++i) {
    strangers.push_back(Connect(small.addresses()[0]));
    REQUIRE(bench.RunUntil([&] { return small.guest_count() == std::min<size_t>(i + 2, 3); }));
  }
  REQUIRE(bench.RunUntil([&] { return IsClosed(strangers[0].get()); }, milliseconds(900)));
  CHECK_FALSE(IsClosed(strangers[1].get()));
  CHECK_FALSE(IsClosed(strangers[2].get()));
  CHECK_FALSE(IsClosed(elsewhere.get()));
}

TEST_CASE(
    "acceptor never lets one go that it has answered, but rather one that has named no link") {
  Bench bench;
  LinkAcceptor small(bench.loop, 2);
  REQUIRE(small.ListenAt("127.0.0.1", {}).ok());
  int links = 0;
  small.Expect({1}, 0, "key", [&](LinkId, PrivateFd) { ++links; });
  const std::string& address = small.addresses()[0];
  const HandshakeInitiator initiator("key", kLink, FreshNonce());
  const PrivateFd member = Connect(address);
  SendAll(member, initiator.Hello());
  const std::string answer = Receive(bench, member, HandshakeInitiator::kAnswerBytes);
  const PrivateFd silent = Connect(address);
  REQUIRE(bench.RunUntil([&] { return small.guest_count() == 2; }));
  const PrivateFd other = Connect(address);
  SendAll(other, initiator.Hello());
  REQUIRE(Receive(bench, other, HandshakeInitiator::kAnswerBytes).size() > 0);
  CHECK(IsClosed(silent.get()));
  const PrivateFd newcomer = Connect(address);  // Now all are answered.
  CHECK(Receive(bench, newcomer, 1).empty());
  SendAll(member, initiator.Finish(answer).value());
  CHECK(bench.RunUntil([&] { return links == 1; }));
}

TEST_CASE("acceptor refuses a handshake that was recorded and is sent again") {
  Bench bench;
  int links = 0;
  bench.acceptor->Expect({1}, 0, "key", [&](LinkId, PrivateFd) { ++links; });
  const HandshakeInitiator initiator("key", kLink, FreshNonce());
  const std::string hello = initiator.Hello();
  const PrivateFd real = Connect(bench.address);
  SendAll(real, hello);
  const std::string answer = Receive(bench, real, HandshakeInitiator::kAnswerBytes);
  const std::string proof = initiator.Finish(answer).value();
  SendAll(real, proof);
  REQUIRE(bench.RunUntil([&] { return links == 1; }));

  // All at once, or in step with the answers: what was said once proves nothing.
  const PrivateFd at_once = Connect(bench.address);
  SendAll(at_once, hello + proof);
  const PrivateFd in_step = Connect(bench.address);
  SendAll(in_step, hello);
  const std::string other = Receive(bench, in_step, HandshakeInitiator::kAnswerBytes);
  CHECK(other != answer);
  SendAll(in_step, proof);
  CHECK(Receive(bench, in_step, 1).empty());
  Receive(bench, at_once, HandshakeInitiator::kAnswerBytes);
  CHECK(Receive(bench, at_once, 1).empty());
  CHECK(links == 1);
  CHECK(bench.acceptor->guest_count() == 0);
}

TEST_CASE("acceptor refuses its own answer as the proof of another connection") {
  Bench bench;
  bench.acceptor->Expect({1}, 0, "key", [](LinkId, PrivateFd) { FAIL("a link was accepted"); });
  const std::string hello = HandshakeInitiator("?", kLink, FreshNonce()).Hello();
  const PrivateFd first = Connect(bench.address);
  SendAll(first, hello);
  const std::string answer = Receive(bench, first, HandshakeInitiator::kAnswerBytes);
  SendAll(first, answer.substr(sizeof(Nonce)));
  CHECK(Receive(bench, first, 1).empty());
}

}  // namespace muster::worker
