#include "worker/link_acceptor.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

namespace muster::worker {
namespace {
constexpr std::chrono::milliseconds kPauseWithoutDescriptors{100};
}  // namespace

LinkAcceptor::LinkAcceptor(Loop& loop, PrivateFd listener)
    : loop_(loop), listener_(std::move(listener)) {
  loop_.Watch(listener_.get(), EPOLLIN, [this](uint32_t) { OnListener(); });
}

LinkAcceptor::~LinkAcceptor() {
  loop_.Unwatch(listener_.get());
  while (!guests_.empty()) {
    Drop(guests_.begin()->first);
  }
}

void LinkAcceptor::Expect(Generation generation,
                          uint32_t own_rank,
                          std::string key,
                          OnLink on_link) {
  newest_ = std::max(newest_, generation);
  expected_ = Expected{generation, own_rank, std::move(key), std::move(on_link)};
  std::vector<GuestId> parked;
  for (const auto& [id, guest] : guests_) {
    if (guest.parked) {
      parked.push_back(id);
    }
  }
  for (const GuestId id : parked) {
    Answer(id, guests_.at(id));
  }
}

void LinkAcceptor::Forget(Generation generation) {
  newest_ = std::max(newest_, generation);
  if (expected_ && expected_->generation <= generation) {
    expected_.reset();
  }
}

void LinkAcceptor::OnListener() {
  for (;;) {
    Result<PrivateFd> accepted = Accept(listener_.get());
    if (!accepted.ok()) {
      if (errno == EMFILE || errno == ENFILE) {
        // The connection stays in the queue; without a pause the loop would spin on it.
        loop_.Modify(listener_.get(), 0);
        loop_.After(kPauseWithoutDescriptors, [this] { loop_.Modify(listener_.get(), EPOLLIN); });
      }
      return;
    }
    if (guests_.size() >= kGuestsMax) {
      Drop(guests_.begin()->first);
    }
    const GuestId id = next_guest_++;
    Guest& guest = guests_[id];
    guest.fd = std::move(accepted).value();
    guest.deadline = loop_.After(kHandshakeTimeout, [this, id] { Drop(id); });
    loop_.Watch(guest.fd.get(), EPOLLIN, [this, id](uint32_t) { OnGuest(id); });
  }
}

void LinkAcceptor::Drop(GuestId id) {
  const auto it = guests_.find(id);
  if (it == guests_.end()) {
    return;
  }
  loop_.Cancel(it->second.deadline);
  if (it->second.fd.valid()) {
    loop_.Unwatch(it->second.fd.get());
  }
  guests_.erase(it);
}

// Reads exactly the bytes of the handshake: what follows belongs to the link's owner.
void LinkAcceptor::OnGuest(GuestId id) {
  const auto it = guests_.find(id);
  if (it == guests_.end()) {
    return;
  }
  Guest& guest = it->second;
  const size_t wanted =
      guest.handshake ? HandshakeResponder::kProofBytes : HandshakeResponder::kHelloBytes;
  if (guest.parked) {
    Drop(id);  // It may not speak before the answer, so it has closed.
    return;
  }
  const size_t used = guest.in.size();
  guest.in.resize(wanted);
  const ssize_t count = ReadSome(guest.fd.get(), guest.in.data() + used, wanted - used);
  guest.in.resize(used + static_cast<size_t>(std::max<ssize_t>(count, 0)));
  if (count < 0) {
    Drop(id);
  } else if (guest.in.size() == wanted) {
    Advance(id, guest);
  }
}

void LinkAcceptor::Advance(GuestId id, Guest& guest) {
  const std::string bytes = std::exchange(guest.in, "");
  if (!guest.handshake) {
    Result<HandshakeResponder> hello = HandshakeResponder::Read(bytes, FreshNonce());
    if (!hello.ok()) {
      Drop(id);
      return;
    }
    guest.handshake = std::move(hello).value();
    Answer(id, guest);
    return;
  }
  const LinkId link = guest.handshake->id();
  if (!expected_ || link.generation != expected_->generation ||
      !guest.handshake->Check(expected_->key, bytes)) {
    Drop(id);
    return;
  }
  loop_.Unwatch(guest.fd.get());
  PrivateFd fd = std::move(guest.fd);
  Drop(id);
  const OnLink on_link = expected_->on_link;
  on_link(link, std::move(fd));
}

void LinkAcceptor::Answer(GuestId id, Guest& guest) {
  const LinkId link = guest.handshake->id();
  if (link.generation > newest_) {
    guest.parked = true;
    return;
  }
  guest.parked = false;
  if (!expected_ || link.generation != expected_->generation || link.to != expected_->own_rank) {
    Drop(id);
    return;
  }
  // A new socket takes these few bytes at once; if not, the connection is of no use.
  const std::string answer = guest.handshake->Answer(expected_->key);
  if (WriteSome(guest.fd.get(), answer.data(), answer.size()) !=
      static_cast<ssize_t>(answer.size())) {
    Drop(id);
  }
}

}  // namespace muster::worker
