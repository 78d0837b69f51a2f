#include "worker/collective/peer_mesh.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/check.h"

namespace muster::worker {
namespace {

// Small messages arrive with one read; of a large one at most this much is copied twice.
constexpr size_t kStagingBytes = 16u << 10;

/// -1: broken. 0: not now.
ssize_t WriteBoth(int fd, const char* header, size_t header_bytes, const char* data, size_t bytes) {
  iovec parts[2] = {{const_cast<char*>(header), header_bytes}, {const_cast<char*>(data), bytes}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  const ssize_t count = ::sendmsg(fd, &message, MSG_NOSIGNAL);
  if (count >= 0) {
    return count;
  }
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
}

}  // namespace

PeerMesh::PeerMesh(int rank, std::vector<PrivateFd> sockets)
    : rank_(rank), peers_(sockets.size()), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  MUSTER_CHECK(wake_.valid(), std::string("eventfd: ") + strerror(errno));
  for (size_t i = 0; i < sockets.size(); ++i) {
    peers_[i].fd = std::move(sockets[i]);
    if (peers_[i].fd.valid()) {
      peers_[i].staging.resize(kStagingBytes);
    }
  }
}

PeerMesh::~PeerMesh() = default;

void PeerMesh::Abort() {
  aborted_.store(true, std::memory_order_release);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t size = ::write(wake_.get(), &one, sizeof one);
}

Status PeerMesh::Break(int rank, const std::string& what) {
  if (std::find(suspects_.begin(), suspects_.end(), rank) == suspects_.end()) {
    suspects_.push_back(rank);
  }
  broken_ = Status::Failed("the data link with rank " + std::to_string(rank) + " " + what);
  return broken_;
}

// ---------------------------------------------------------------- sending

Status PeerMesh::Send(int to, uint64_t slot, const void* data, size_t bytes, Completions& owner) {
  if (!broken_.ok()) {
    return broken_;
  }
  MUSTER_CHECK(to >= 0 && to < size() && to != rank_, "a peer");
  peers_[to].out.push_back({{slot, bytes}, static_cast<const char*>(data), 0, &owner});
  return peers_[to].out.size() == 1 ? WriteTo(to) : Status::Ok();
}

Status PeerMesh::WriteTo(int to) {
  Peer& peer = peers_[to];
  while (!peer.out.empty()) {
    Outgoing& message = peer.out.front();
    const size_t header_done = std::min(message.done, sizeof(Header));
    const size_t data_done = message.done - header_done;
    const ssize_t count = WriteBoth(peer.fd.get(),
                                    reinterpret_cast<const char*>(&message.header) + header_done,
                                    sizeof(Header) - header_done,
                                    message.data + data_done,
                                    message.header.bytes - data_done);
    if (count < 0) {
      return Break(to, "was closed while sending");
    }
    message.done += static_cast<size_t>(count);
    if (message.done < sizeof(Header) + message.header.bytes) {
      return Status::Ok();
    }
    message.owner->sent.push_back(to);
    peer.out.pop_front();
  }
  return Status::Ok();
}

// ---------------------------------------------------------------- receiving

bool PeerMesh::IsExpected(const Expected& receive, int from) const {
  return std::find(receive.from.begin(), receive.from.end(), from) != receive.from.end();
}

void PeerMesh::Unwant(const Expected& receive) {
  for (const int rank : receive.from) {
    --peers_[rank].wanted;
  }
}

Status PeerMesh::Receive(
    std::vector<int> from, uint64_t slot, void* data, size_t bytes, Completions& owner) {
  if (!broken_.ok()) {
    return broken_;
  }
  Expected receive{std::move(from), slot, static_cast<char*>(data), bytes, &owner};
  if (TakeEarly(receive)) {
    return broken_;
  }
  for (const int rank : receive.from) {
    MUSTER_CHECK(rank >= 0 && rank < size() && rank != rank_, "a peer");
    ++peers_[rank].wanted;
  }
  const std::vector<int> sources = receive.from;
  expected_.push_back(std::move(receive));
  for (const int rank : sources) {
    // It may be here already, in what was read ahead.
    const Status status = ReadFrom(rank);
    if (!status.ok()) {
      return status;
    }
  }
  return Status::Ok();
}

bool PeerMesh::TakeEarly(const Expected& receive) {
  for (const int rank : receive.from) {
    Peer& peer = peers_[rank];
    const auto end = peer.early.end();
    const auto newest = peer.has_incoming && peer.incoming.owner == nullptr ? std::prev(end) : end;
    const auto it = std::find_if(
        peer.early.begin(), newest, [&](const Early& e) { return e.slot == receive.slot; });
    if (it == newest) {
      continue;
    }
    if (it->bytes.size() != receive.bytes) {
      // Not ok() from here on, which Receive returns.
      [[maybe_unused]] const Status broken = Break(rank, "brought a message of another size");
      return true;
    }
    std::copy(it->bytes.begin(), it->bytes.end(), receive.data);
    receive.owner->received.push_back(rank);
    peer.early.erase(it);
    return true;
  }
  return false;
}

Result<bool> PeerMesh::BeginMessage(int from, Header header) {
  Peer& peer = peers_[from];
  const auto it = std::find_if(expected_.begin(), expected_.end(), [&](const Expected& receive) {
    return receive.slot == header.slot && IsExpected(receive, from);
  });
  if (it != expected_.end()) {
    if (it->bytes != header.bytes) {
      return Break(from, "brought a message of another size");
    }
    peer.incoming = {header.bytes, 0, it->data, it->owner};
    Unwant(*it);
    expected_.erase(it);
  } else if (peer.wanted > 0) {
    // Something behind this message is asked for.
    peer.early.push_back({header.slot, ""});
    peer.incoming = {header.bytes, 0, nullptr, nullptr};
  } else {
    return false;
  }
  peer.has_incoming = true;
  return true;
}

// Of a message that nobody has asked for, the size is only a claim: it gets memory as its bytes
// arrive.
PeerMesh::Room PeerMesh::RoomFor(Peer& peer) {
  Incoming& incoming = peer.incoming;
  size_t end = incoming.bytes;
  if (incoming.owner == nullptr) {
    std::string& bytes = peer.early.back().bytes;
    if (incoming.done == bytes.size()) {
      const size_t more = std::max(kStagingBytes, incoming.done);
      bytes.resize(incoming.done + std::min(more, incoming.bytes - incoming.done));
      incoming.target = bytes.data();
    }
    end = bytes.size();
  }
  return {incoming.target + incoming.done, end - incoming.done};
}

void PeerMesh::FinishMessage(int from) {
  Peer& peer = peers_[from];
  peer.has_incoming = false;
  if (peer.incoming.owner != nullptr) {
    peer.incoming.owner->received.push_back(from);
    return;
  }
  // Its receive may have been posted while it came in.
  const uint64_t slot = peer.early.back().slot;
  const auto it = std::find_if(expected_.begin(), expected_.end(), [&](const Expected& receive) {
    return receive.slot == slot && IsExpected(receive, from);
  });
  if (it != expected_.end()) {
    const Expected receive = *it;
    Unwant(receive);
    expected_.erase(it);
    TakeEarly(receive);
  }
}

Status PeerMesh::ReadFrom(int from) {
  Peer& peer = peers_[from];
  for (;;) {
    const size_t staged = peer.staged_end - peer.staged_begin;
    if (peer.has_incoming) {
      Incoming& incoming = peer.incoming;
      Room room = RoomFor(peer);
      const size_t from_staging = std::min(staged, room.bytes);
      std::copy_n(peer.staging.data() + peer.staged_begin, from_staging, room.begin);
      incoming.done += from_staging;
      peer.staged_begin += from_staging;
      if (incoming.done < incoming.bytes) {
        room = RoomFor(peer);
        const ssize_t count = ReadSome(peer.fd.get(), room.begin, room.bytes);
        if (count <= 0) {
          return count < 0 ? Break(from, "was closed in a message") : Status::Ok();
        }
        incoming.done += static_cast<size_t>(count);
      }
      if (incoming.done == incoming.bytes) {
        FinishMessage(from);
        if (!broken_.ok()) {
          return broken_;
        }
      }
      continue;
    }
    if (staged >= sizeof(Header)) {
      Header header;
      std::memcpy(&header, peer.staging.data() + peer.staged_begin, sizeof header);
      const Result<bool> begun = BeginMessage(from, header);
      if (!begun.ok()) {
        return begun.status();
      }
      if (!begun.value()) {
        return Status::Ok();
      }
      peer.staged_begin += sizeof header;
      continue;
    }
    if (peer.wanted == 0) {
      return Status::Ok();
    }
    std::memmove(peer.staging.data(), peer.staging.data() + peer.staged_begin, staged);
    peer.staged_begin = 0;
    peer.staged_end = staged;
    const ssize_t count =
        ReadSome(peer.fd.get(), peer.staging.data() + staged, kStagingBytes - staged);
    if (count <= 0) {
      return count < 0 ? Break(from, "was closed") : Status::Ok();
    }
    peer.staged_end += static_cast<size_t>(count);
  }
}

// ---------------------------------------------------------------- waiting

Status PeerMesh::Check() {
  if (aborted_.load(std::memory_order_acquire)) {
    broken_ = Status(StatusCode::kAborted, "the generation was revoked");
  }
  return broken_;
}

Status PeerMesh::Wait(const std::deque<int>& completed, Deadline deadline) {
  for (;;) {
    if (!Check().ok()) {
      return broken_;
    }
    if (!completed.empty()) {
      return Status::Ok();
    }
    const Status status = PollOnce(deadline);
    if (!status.ok()) {
      return status;
    }
  }
}

Status PeerMesh::PollOnce(Deadline deadline) {
  std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}};
  std::vector<int> ranks = {-1};
  for (int rank = 0; rank < size(); ++rank) {
    const Peer& peer = peers_[rank];
    const bool reads = peer.has_incoming || peer.wanted > 0;
    const short events =
        static_cast<short>((reads ? POLLIN : 0) | (peer.out.empty() ? 0 : POLLOUT));
    if (events != 0) {
      polled.push_back({peer.fd.get(), events, 0});
      ranks.push_back(rank);
    }
  }
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  if (left.count() <= 0) {
    return BreakTimeout();
  }
  const int timeout = static_cast<int>(std::min<int64_t>(left.count(), 60'000));
  const int ready = ::poll(polled.data(), polled.size(), timeout);
  MUSTER_CHECK(ready >= 0 || errno == EINTR, std::string("poll: ") + strerror(errno));
  for (size_t i = 1; i < polled.size() && ready > 0; ++i) {
    Status status;
    if ((polled[i].revents & POLLOUT) != 0) {
      status = WriteTo(ranks[i]);
    }
    if (status.ok() && (polled[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
      const bool reads = peers_[ranks[i]].has_incoming || peers_[ranks[i]].wanted > 0;
      status = reads ? ReadFrom(ranks[i]) : WriteTo(ranks[i]);
    }
    if (!status.ok()) {
      return status;
    }
  }
  return Status::Ok();
}

Status PeerMesh::BreakTimeout() {
  for (int rank = 0; rank < size(); ++rank) {
    const Peer& peer = peers_[rank];
    if (peer.has_incoming || peer.wanted > 0 || !peer.out.empty()) {
      suspects_.push_back(rank);
    }
  }
  broken_ = Status(StatusCode::kTimeout, "the operation's time is over");
  return broken_;
}

void PeerMesh::Cancel(Completions& owner) {
  bool cut = false;
  for (Peer& peer : peers_) {
    cut = cut || (peer.has_incoming && peer.incoming.owner == &owner);
    cut = cut || std::any_of(peer.out.begin(), peer.out.end(), [&](const Outgoing& message) {
            return message.owner == &owner;
          });
    if (peer.has_incoming && peer.incoming.owner == &owner) {
      peer.has_incoming = false;
    }
    peer.out.remove_if([&](const Outgoing& message) { return message.owner == &owner; });
  }
  for (auto it = expected_.begin(); it != expected_.end();) {
    if (it->owner == &owner) {
      Unwant(*it);
      it = expected_.erase(it);
      cut = true;
    } else {
      ++it;
    }
  }
  if (cut && broken_.ok()) {
    broken_ = Status::Failed("an operation was given up half way");
  }
}

}  // namespace muster::worker
