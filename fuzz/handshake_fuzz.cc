// The bytes of a link's handshake, on both sides. Whoever does not hold the key proves nothing.

#include "fuzz/fuzz_input.h"
#include "worker/handshake.h"

namespace muster::worker {
namespace {

constexpr const char* kKey = "the link key of this generation";
constexpr LinkId kId{{7}, 2, 0, LinkKind::kData};
constexpr Nonce kOurs{'o', 'u', 'r', 's'};
constexpr Nonce kTheirs{'t', 'h', 'e', 'i', 'r', 's'};

// A hello of the input's, then a proof of the input's.
void AsResponder(fuzz::FuzzInput input) {
  const Result<HandshakeResponder> read =
      HandshakeResponder::Read(input.Piece(HandshakeResponder::kHelloBytes), kOurs);
  if (!read.ok()) {
    return;
  }
  const HandshakeResponder& responder = read.value();
  MUSTER_CHECK_EQ(responder.Answer(kKey).size(), HandshakeInitiator::kAnswerBytes);
  MUSTER_CHECK(!responder.Check(kKey, input.Rest()), "a proof without the key");
}

// An honest hello and an answer of the input's.
void AsInitiator(fuzz::FuzzInput input) {
  const HandshakeInitiator initiator(kKey, kId, kOurs);
  MUSTER_CHECK(!initiator.Finish(input.Rest()).ok(), "an answer without the key");
}

// Two honest sides, between which the input changes one byte.
void WithOneByteChanged(fuzz::FuzzInput input) {
  const size_t message = input.Below(3);
  const auto at = input.Number<uint8_t>();
  const auto flip = static_cast<char>(input.Number<uint8_t>());
  const auto change = [&](std::string bytes, size_t number) {
    if (number == message) {
      bytes[at % bytes.size()] = static_cast<char>(bytes[at % bytes.size()] ^ flip);
    }
    return bytes;
  };
  const HandshakeInitiator initiator(kKey, kId, kOurs);
  const Result<HandshakeResponder> read =
      HandshakeResponder::Read(change(initiator.Hello(), 0), kTheirs);
  if (!read.ok()) {
    MUSTER_CHECK(flip != 0 && message == 0, "an honest hello is understood");
    return;
  }
  const Result<std::string> proof = initiator.Finish(change(read.value().Answer(kKey), 1));
  const bool linked = proof.ok() && read.value().Check(kKey, change(proof.value(), 2));
  MUSTER_CHECK(linked == (flip == 0), "a link if, and only if, nothing was changed");
}

}  // namespace
}  // namespace muster::worker

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const muster::fuzz::FuzzInput input(data, size);
  muster::worker::AsResponder(input);
  muster::worker::AsInitiator(input);
  muster::worker::WithOneByteChanged(input);
  return 0;
}
