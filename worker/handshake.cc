#include "worker/handshake.h"

#include <algorithm>
#include <utility>

#include "common/secret.h"
#include "worker/wire.h"

namespace muster::worker {
namespace {

constexpr uint32_t kMagic = 0x4D555354;  // "MUST"
constexpr uint8_t kVersion = 1;

std::string_view View(const Nonce& nonce) {
  return {nonce.data(), nonce.size()};
}

void PutRaw(std::string& bytes, std::string_view raw) {
  bytes.append(raw);
}

std::string Proof(std::string_view key, char role, const Nonce& a, const Nonce& b, LinkId id) {
  std::string message(1, role);
  PutRaw(message, View(a));
  PutRaw(message, View(b));
  WireWriter fields;
  fields.Put(id.generation.value);
  fields.Put(id.from);
  fields.Put(id.to);
  fields.Put(static_cast<uint8_t>(id.kind));
  PutRaw(message, fields.Take());
  const Digest digest = HmacSha256(key, message);
  return std::string(digest.begin(), digest.end());
}

constexpr char kInitiator = 'i';
constexpr char kResponder = 'r';

}  // namespace

Nonce FreshNonce() {
  const std::string hex = RandomHex(sizeof(Nonce));
  // The hex digits of 16 random bytes, folded back to 16 bytes.
  Nonce nonce;
  for (size_t i = 0; i < nonce.size(); ++i) {
    const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
    nonce[i] = static_cast<char>(digit(hex[2 * i]) * 16 + digit(hex[2 * i + 1]));
  }
  return nonce;
}

HandshakeInitiator::HandshakeInitiator(std::string key, LinkId id, Nonce nonce)
    : key_(std::move(key)), id_(id), nonce_(nonce) {}

std::string HandshakeInitiator::Hello() const {
  WireWriter writer;
  writer.Put(kMagic);
  writer.Put(kVersion);
  writer.Put(static_cast<uint8_t>(id_.kind));
  writer.Put(id_.generation.value);
  writer.Put(id_.from);
  writer.Put(id_.to);
  std::string bytes = writer.Take();
  PutRaw(bytes, View(nonce_));
  return bytes;
}

Result<std::string> HandshakeInitiator::Finish(std::string_view answer) const {
  Nonce theirs;
  if (answer.size() != kAnswerBytes) {
    return Status::Invalid("an answer of the wrong size");
  }
  std::copy_n(answer.begin(), theirs.size(), theirs.begin());
  const std::string_view proof = answer.substr(theirs.size());
  if (!EqualInConstantTime(proof, Proof(key_, kResponder, nonce_, theirs, id_))) {
    return Status::Invalid("the other side does not hold the link key");
  }
  return Proof(key_, kInitiator, nonce_, theirs, id_);
}

HandshakeResponder::HandshakeResponder(LinkId id, Nonce theirs, Nonce ours)
    : id_(id), theirs_(theirs), ours_(ours) {}

Result<HandshakeResponder> HandshakeResponder::Read(std::string_view hello, Nonce nonce) {
  WireReader reader(hello);
  const auto magic = reader.Get<uint32_t>();
  const auto version = reader.Get<uint8_t>();
  const auto kind = reader.Get<uint8_t>();
  LinkId id;
  id.generation.value = reader.Get<uint64_t>();
  id.from = reader.Get<uint32_t>();
  id.to = reader.Get<uint32_t>();
  if (!reader.ok() || hello.size() != kHelloBytes || magic != kMagic || version != kVersion ||
      (kind != static_cast<uint8_t>(LinkKind::kControl) &&
       kind != static_cast<uint8_t>(LinkKind::kData))) {
    return Status::Invalid("not a muster link");
  }
  id.kind = static_cast<LinkKind>(kind);
  Nonce theirs;
  std::copy_n(hello.end() - theirs.size(), theirs.size(), theirs.begin());
  return HandshakeResponder(id, theirs, nonce);
}

std::string HandshakeResponder::Answer(std::string_view key) const {
  std::string bytes(View(ours_));
  PutRaw(bytes, Proof(key, kResponder, theirs_, ours_, id_));
  return bytes;
}

bool HandshakeResponder::Check(std::string_view key, std::string_view proof) const {
  return EqualInConstantTime(proof, Proof(key, kInitiator, theirs_, ours_, id_));
}

}  // namespace muster::worker
