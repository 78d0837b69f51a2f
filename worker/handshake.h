#pragma once

// The handshake that opens every link between two members of a generation: both prove that they
// hold the generation's link key, for exactly this link and this moment. Bytes in, bytes out; no
// sockets and no clock (the caller drops a link that takes longer than kHandshakeTimeout).
//
//   initiator -> responder   Hello   (which link, generation, nonce A)
//   responder -> initiator   nonce B, proof of the responder
//   initiator -> responder   proof of the initiator
//
// A proof is HMAC-SHA256(link key, role | nonce A | nonce B | generation | from | to | kind): the
// role keeps a proof from being reflected, fresh nonces keep it from being replayed.
//
// Threads: one at a time.

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/ids.h"
#include "common/status.h"

namespace muster::worker {

inline constexpr std::chrono::seconds kHandshakeTimeout{1};

enum class LinkKind : uint8_t { kControl = 1, kData = 2 };

/// Which link: `from` opened it.
struct LinkId {
  Generation generation;
  uint32_t from = 0;
  uint32_t to = 0;
  LinkKind kind = LinkKind::kControl;
  auto operator<=>(const LinkId&) const = default;
};

using Nonce = std::array<char, 16>;
Nonce FreshNonce();

/// The side that opened the connection.
class HandshakeInitiator {
 public:
  HandshakeInitiator(std::string key, LinkId id, Nonce nonce);

  /// For another try: a nonce is used once.
  void Renew(Nonce nonce) { nonce_ = nonce; }
  /// What to send first.
  std::string Hello() const;
  /// What to send last, given the kAnswerBytes from the responder; an error: drop the link.
  Result<std::string> Finish(std::string_view answer) const;

  static constexpr size_t kAnswerBytes = 16 + 32;

 private:
  const std::string key_;
  const LinkId id_;
  Nonce nonce_;
};

/// The side that accepted the connection. First it learns which link is wanted, then the caller
/// finds the key of that generation.
class HandshakeResponder {
 public:
  static constexpr size_t kHelloBytes = 4 + 1 + 1 + 8 + 4 + 4 + 16;
  static constexpr size_t kProofBytes = 32;

  /// kInvalid: this is not our protocol.
  static Result<HandshakeResponder> Read(std::string_view hello, Nonce nonce);

  const LinkId& id() const { return id_; }
  /// What to send.
  std::string Answer(std::string_view key) const;
  /// True if the initiator holds the key.
  bool Check(std::string_view key, std::string_view proof) const;

 private:
  HandshakeResponder(LinkId id, Nonce theirs, Nonce ours);

  LinkId id_;
  Nonce theirs_;
  Nonce ours_;
};

}  // namespace muster::worker
