#include "worker/handshake.h"

#include <catch2/catch.hpp>

namespace muster::worker {
namespace {

const LinkId kLink{{7}, 3, 0, LinkKind::kControl};

struct Exchange {
  std::string hello;
  std::string answer;
  std::string proof;
};

/// A whole handshake between a holder of `key` and one of `other_key`.
Exchange Shake(const std::string& key, const std::string& other_key) {
  Exchange exchange;
  const HandshakeInitiator initiator(key, kLink, FreshNonce());
  exchange.hello = initiator.Hello();
  Result<HandshakeResponder> responder = HandshakeResponder::Read(exchange.hello, FreshNonce());
  REQUIRE(responder.ok());
  CHECK(responder.value().id() == kLink);
  exchange.answer = responder.value().Answer(other_key);
  const Result<std::string> proof = initiator.Finish(exchange.answer);
  if (proof.ok()) {
    exchange.proof = proof.value();
    CHECK(responder.value().Check(other_key, exchange.proof));
  }
  return exchange;
}

}  // namespace

TEST_CASE("handshake succeeds between holders of the key") {
  const Exchange exchange = Shake("key", "key");
  CHECK(exchange.hello.size() == HandshakeResponder::kHelloBytes);
  CHECK(exchange.answer.size() == HandshakeInitiator::kAnswerBytes);
  CHECK(exchange.proof.size() == HandshakeResponder::kProofBytes);
}

TEST_CASE("handshake initiator refuses a responder with another key") {
  CHECK(Shake("key", "yek").proof.empty());
}

TEST_CASE("handshake responder refuses an initiator with another key") {
  const HandshakeInitiator initiator("wrong", kLink, FreshNonce());
  const auto responder = HandshakeResponder::Read(initiator.Hello(), FreshNonce()).value();
  // The initiator sees a proof that it can check, so that it answers at all.
  const std::string proof = initiator.Finish(responder.Answer("wrong")).value();
  CHECK_FALSE(responder.Check("key", proof));
}

TEST_CASE("handshake responder refuses a recorded exchange") {
  const Exchange recorded = Shake("key", "key");
  const auto again = HandshakeResponder::Read(recorded.hello, FreshNonce()).value();
  CHECK_FALSE(again.Check("key", recorded.proof));
}

TEST_CASE("handshake responder refuses its own proof sent back") {
  const HandshakeInitiator initiator("key", kLink, FreshNonce());
  const auto responder = HandshakeResponder::Read(initiator.Hello(), FreshNonce()).value();
  CHECK_FALSE(responder.Check("key", responder.Answer("key").substr(16)));
}

TEST_CASE("handshake proof holds for one link only") {
  const Nonce a = FreshNonce();
  const Nonce b = FreshNonce();
  const auto proof_for = [&](LinkId id) {
    const HandshakeInitiator initiator("key", id, a);
    const auto responder = HandshakeResponder::Read(initiator.Hello(), b).value();
    return initiator.Finish(responder.Answer("key")).value();
  };
  const auto responder =
      HandshakeResponder::Read(HandshakeInitiator("key", kLink, a).Hello(), b).value();
  CHECK(responder.Check("key", proof_for(kLink)));
  CHECK_FALSE(responder.Check("key", proof_for({{8}, 3, 0, LinkKind::kControl})));
  CHECK_FALSE(responder.Check("key", proof_for({{7}, 2, 0, LinkKind::kControl})));
  CHECK_FALSE(responder.Check("key", proof_for({{7}, 3, 1, LinkKind::kControl})));
  CHECK_FALSE(responder.Check("key", proof_for({{7}, 3, 0, LinkKind::kData})));
}

TEST_CASE("handshake responder does not read what is not a hello") {
  const std::string hello = HandshakeInitiator("key", kLink, FreshNonce()).Hello();
  CHECK_FALSE(HandshakeResponder::Read("", FreshNonce()).ok());
  CHECK_FALSE(HandshakeResponder::Read("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n12345", {}).ok());
  CHECK_FALSE(HandshakeResponder::Read(hello.substr(1), {}).ok());
  CHECK_FALSE(HandshakeResponder::Read(hello + "x", {}).ok());
  for (const size_t position : {0, 4, 5}) {  // Magic, version, kind.
    std::string damaged = hello;
    damaged[position] = static_cast<char>(damaged[position] ^ 0x40);
    CHECK_FALSE(HandshakeResponder::Read(damaged, {}).ok());
  }
}

TEST_CASE("handshake nonces are fresh") {
  CHECK(FreshNonce() != FreshNonce());
}

}  // namespace muster::worker
