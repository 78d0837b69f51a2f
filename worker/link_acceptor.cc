#include "worker/link_acceptor.h"

#include <sys/epoll.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace muster::worker {
namespace {

constexpr std::chrono::milliseconds kPauseWithoutDescriptors{100};
/// Then the loop looks at what the guests have to say: the more of them have, the fewer have to go.
constexpr int kAcceptsPerRound = 16;
/// A member needs one round trip to prove itself after the answer.
constexpr std::chrono::milliseconds kProofTime{250};

uint64_t OpenFilesLimit() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

}  // namespace

size_t LinkAcceptor::GuestsMax(uint64_t open_files) {
  return std::clamp<uint64_t>(open_files / 4, 64, 1024);
}

LinkAcceptor::LinkAcceptor(Loop& loop, std::optional<size_t> guests_max)
    : loop_(loop), guests_max_(guests_max.value_or(GuestsMax(OpenFilesLimit()))) {}

LinkAcceptor::~LinkAcceptor() {
  while (!guests_.empty()) {
    Drop(guests_.begin()->first);
  }
  for (const Listener& listener : listeners_) {
    loop_.Cancel(listener.pause);
    loop_.Unwatch(listener.fd.get());
  }
}

Status LinkAcceptor::Listen(const ListenPlan& plan) {
  if (plan.hosts.empty()) {
    Result<PrivateFd> listener = ListenOnLoopback(plan.ports);
    return listener.ok() ? Add(std::move(listener).value()) : listener.status();
  }
  for (const std::string& host : plan.hosts) {
    if (Status status = ListenAt(host, plan.ports); !status.ok()) {
      return status;
    }
  }
  return Status::Ok();
}

Status LinkAcceptor::ListenAt(const std::string& host, PortRange ports) {
  const bool known = std::any_of(listeners_.begin(),
                                 listeners_.end(),
                                 [&host](const Listener& each) { return each.host == host; });
  if (known) {
    return Status::Ok();
  }
  Result<UniqueFd> listener = ListenInRange(host, ports);
  return listener.ok() ? Add(PrivateFd(listener.value().Release())) : listener.status();
}

Status LinkAcceptor::Add(PrivateFd fd) {
  const Result<std::string> address = LocalAddress(fd.get());
  if (!address.ok()) {
    return address.status();
  }
  addresses_.push_back(address.value());
  Listener& listener = listeners_.emplace_back();
  listener.fd = std::move(fd);
  listener.host = SplitAddress(address.value()).value().host;
  loop_.Watch(listener.fd.get(), EPOLLIN, [this, &listener](uint32_t) { OnListener(listener); });
  return Status::Ok();
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

void LinkAcceptor::OnListener(Listener& listener) {
  for (int i = 0; i < kAcceptsPerRound; ++i) {
    int error = 0;
    Result<PrivateFd> accepted = Accept(listener.fd.get(), &error);
    const bool shortage = error == EMFILE || error == ENFILE;
    if (accepted.ok()) {
      Welcome(listener, std::move(accepted).value());
    } else if (!shortage) {
      return;
    } else if (!DropOne(nullptr)) {
      // The connection stays in the kernel's queue for a while: the loop would spin on it.
      const int fd = listener.fd.get();
      loop_.Modify(fd, 0);
      listener.pause =
          loop_.After(kPauseWithoutDescriptors, [this, fd] { loop_.Modify(fd, EPOLLIN); });
      return;
    }
  }
}

void LinkAcceptor::Welcome(Listener& listener, PrivateFd fd) {
  if (listener.guests >= guests_max_ && !DropOne(&listener)) {
    return;
  }
  const GuestId id = next_guest_++;
  Guest& guest = guests_[id];
  guest.fd = std::move(fd);
  guest.listener = &listener;
  ++listener.guests;
  guest.deadline = loop_.After(kHandshakeTimeout, [this, id] { Drop(id); });
  loop_.Watch(guest.fd.get(), EPOLLIN, [this, id](uint32_t) { OnGuest(id); });
}

// Of this listener, or of any.
bool LinkAcceptor::DropOne(const Listener* listener) {
  std::optional<GuestId> parked;
  std::optional<GuestId> overdue;
  for (const auto& [id, guest] : guests_) {
    if (listener != nullptr && guest.listener != listener) {
      continue;
    }
    if (!guest.handshake) {
      Drop(id);
      return true;
    }
    if (guest.parked && !parked) {
      parked = id;
    } else if (!guest.parked && !overdue && loop_.Now() - guest.answered > kProofTime) {
      overdue = id;
    }
  }
  const std::optional<GuestId> chosen = overdue ? overdue : parked;
  if (chosen) {
    Drop(*chosen);
  }
  return chosen.has_value();
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
  --it->second.listener->guests;
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
  guest.answered = loop_.Now();
  // A new socket takes these few bytes at once; if not, the connection is of no use.
  const std::string answer = guest.handshake->Answer(expected_->key);
  if (WriteSome(guest.fd.get(), answer.data(), answer.size()) !=
      static_cast<ssize_t>(answer.size())) {
    Drop(id);
  }
}

}  // namespace muster::worker
