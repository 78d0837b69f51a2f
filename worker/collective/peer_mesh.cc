#include "worker/collective/peer_mesh.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "common/check.h"

namespace muster::worker {
namespace {

// Small messages arrive with one read, several at once.
constexpr size_t kStagingBytes = 16u << 10;
// A message from this size on is read to its place, after its header alone.
constexpr size_t kLargeBytes = 4u << 10;
// Without an eventfd to be woken by (no descriptor was left) a wait looks up this often.
constexpr int kBlindPollMilliseconds = 2;
// Messages that one call of the kernel takes.
constexpr size_t kGatheredMax = 8;

bool MayComeLater(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace

PeerMesh::PeerMesh(int rank, std::vector<PrivateFd> sockets, std::chrono::microseconds spin)
    : rank_(rank),
      spin_(spin),
      peers_(sockets.size()),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
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
  for (const Peer& peer : peers_) {  // Their descriptors stay for as long as this object does.
    if (peer.fd.valid()) {
      DiscardUnreceived(peer.fd.get());
    }
  }
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
    iovec parts[2 * kGatheredMax];
    size_t part_count = 0;
    size_t bytes = 0;
    const auto add = [&](const void* data, size_t size) {
      parts[part_count++] = {const_cast<void*>(data), size};
      bytes += size;
    };
    for (const Outgoing& message : peer.out) {
      const size_t header_done = std::min(message.done, sizeof(Header));
      const size_t data_done = message.done - header_done;
      add(reinterpret_cast<const char*>(&message.header) + header_done,
          sizeof(Header) - header_done);
      add(message.data + data_done, message.header.bytes - data_done);
      if (part_count == 2 * kGatheredMax) {
        break;
      }
    }
    msghdr gathered{};
    gathered.msg_iov = parts;
    gathered.msg_iovlen = part_count;
    const ssize_t count = ::sendmsg(peer.fd.get(), &gathered, MSG_NOSIGNAL);
    if (count < 0) {
      return MayComeLater(errno) ? Status::Ok() : Break(to, "was closed while sending");
    }
    CountWritten(to, static_cast<size_t>(count));
    if (static_cast<size_t>(count) < bytes) {
      return Status::Ok();
    }
  }
  return Status::Ok();
}

void PeerMesh::CountWritten(int to, size_t bytes) {
  std::list<Outgoing>& out = peers_[to].out;
  while (!out.empty()) {
    Outgoing& message = out.front();
    const size_t left = sizeof(Header) + message.header.bytes - message.done;
    if (bytes < left) {
      message.done += bytes;
      return;
    }
    bytes -= left;
    message.owner->sent.push_back(to);
    out.pop_front();
  }
}

// ---------------------------------------------------------------- receiving

std::list<PeerMesh::Expected>::iterator PeerMesh::FindExpected(int from, uint64_t slot) {
  return std::find_if(expected_.begin(), expected_.end(), [&](const Expected& receive) {
    return receive.slot == slot && receive.MayComeFrom(from);
  });
}

void PeerMesh::Unwant(const Expected& receive) {
  for (const int rank : receive.sources()) {
    --peers_[rank].wanted;
  }
}

Status PeerMesh::Receive(int from, uint64_t slot, void* data, size_t bytes, Completions& owner) {
  return Post({from, {}, slot, static_cast<char*>(data), bytes, &owner});
}

Status PeerMesh::Receive(
    std::vector<int> from, uint64_t slot, void* data, size_t bytes, Completions& owner) {
  return Post({-1, std::move(from), slot, static_cast<char*>(data), bytes, &owner});
}

Status PeerMesh::Post(Expected receive) {
  if (!broken_.ok()) {
    return broken_;
  }
  for (const int rank : receive.sources()) {
    MUSTER_CHECK(rank >= 0 && rank < size() && rank != rank_, "a peer");
  }
  if (TakeEarly(receive)) {
    return broken_;
  }
  expected_.push_back(std::move(receive));
  const Expected& posted = expected_.back();
  for (const int rank : posted.sources()) {
    ++peers_[rank].wanted;
  }
  if (posted.from >= 0) {
    return ReadStaged(posted.from);
  }
  const std::vector<int> sources = posted.any;  // The posted one is gone once it is served.
  for (const int rank : sources) {
    const Status status = ReadStaged(rank);
    if (!status.ok()) {
      return status;
    }
  }
  return Status::Ok();
}

// It may be here already, in what was read ahead; then the socket may never turn readable again.
Status PeerMesh::ReadStaged(int from) {
  const Peer& peer = peers_[from];
  return peer.staged_begin < peer.staged_end || peer.wanted == 1 ? ReadFrom(from) : Status::Ok();
}

bool PeerMesh::TakeEarly(const Expected& receive) {
  for (const int rank : receive.sources()) {
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
  const auto it = FindExpected(from, header.slot);
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
  const auto it = FindExpected(from, slot);
  if (it != expected_.end()) {
    const Expected receive = *it;
    Unwant(receive);
    expected_.erase(it);
    TakeEarly(receive);
  }
}

size_t PeerMesh::ReadAhead(int from) const {
  const auto next = std::find_if(expected_.begin(), expected_.end(), [&](const Expected& receive) {
    return receive.MayComeFrom(from);
  });
  const bool is_large = next != expected_.end() && next->bytes >= kLargeBytes;
  return is_large ? sizeof(Header) : kStagingBytes;
}

ssize_t PeerMesh::ReadBody(int from, bool& drained) {
  Peer& peer = peers_[from];
  const Room room = RoomFor(peer);
  const bool to_end = peer.incoming.done + room.bytes == peer.incoming.bytes;
  iovec parts[2] = {{room.begin, room.bytes}, {peer.staging.data(), 0}};
  if (to_end && peer.wanted > 0) {
    parts[1].iov_len = ReadAhead(from);
  }
  const ssize_t count = ::readv(peer.fd.get(), parts, 2);
  if (count <= 0) {
    return count < 0 && MayComeLater(errno) ? 0 : -1;
  }
  const size_t bytes = static_cast<size_t>(count);
  drained = bytes < room.bytes + parts[1].iov_len;
  const size_t own = std::min(bytes, room.bytes);
  peer.incoming.done += own;
  peer.staged_begin = 0;
  peer.staged_end = bytes - own;
  return count;
}

void PeerMesh::TakeStaged(int from) {
  Peer& peer = peers_[from];
  const Room room = RoomFor(peer);
  const size_t bytes = std::min(peer.staged_end - peer.staged_begin, room.bytes);
  std::copy_n(peer.staging.data() + peer.staged_begin, bytes, room.begin);
  peer.incoming.done += bytes;
  peer.staged_begin += bytes;
}

Status PeerMesh::ReadFrom(int from) {
  Peer& peer = peers_[from];
  for (bool drained = false;;) {
    if (peer.has_incoming) {
      TakeStaged(from);
      if (peer.incoming.done < peer.incoming.bytes && peer.staged_begin == peer.staged_end) {
        const ssize_t count = drained ? 0 : ReadBody(from, drained);
        if (count <= 0) {
          return count < 0 ? Break(from, "was closed in a message") : Status::Ok();
        }
      }
      if (peer.incoming.done == peer.incoming.bytes) {
        FinishMessage(from);
        if (!broken_.ok()) {
          return broken_;
        }
      }
      continue;
    }
    const size_t staged = peer.staged_end - peer.staged_begin;
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
    if (peer.wanted == 0 || drained) {
      return Status::Ok();
    }
    const ssize_t count = ReadHeader(from, drained);
    if (count <= 0) {
      return count < 0 ? Break(from, "was closed") : Status::Ok();
    }
  }
}

ssize_t PeerMesh::ReadHeader(int from, bool& drained) {
  Peer& peer = peers_[from];
  const size_t staged = peer.staged_end - peer.staged_begin;
  std::memmove(peer.staging.data(), peer.staging.data() + peer.staged_begin, staged);
  peer.staged_begin = 0;
  peer.staged_end = staged;
  const size_t room = ReadAhead(from) - staged;
  const ssize_t count = ReadSome(peer.fd.get(), peer.staging.data() + staged, room);
  if (count > 0) {
    peer.staged_end += static_cast<size_t>(count);
    drained = static_cast<size_t>(count) < room;
  }
  return count;
}

// ---------------------------------------------------------------- waiting

Status PeerMesh::Check() {
  if (aborted_.load(std::memory_order_acquire)) {
    broken_ = Status(StatusCode::kAborted, "the generation was revoked");
  }
  return broken_;
}

Status PeerMesh::Wait(const std::deque<int>& completed, Deadline deadline, size_t count) {
  std::optional<Deadline> spun;
  for (;;) {
    if (!Check().ok()) {
      return broken_;
    }
    if (completed.size() >= count) {
      return Status::Ok();
    }
    const Deadline now = std::chrono::steady_clock::now();
    if (now >= deadline) {
      return BreakTimeout();
    }
    if (!spun) {
      spun = now + spin_;
    }
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now);
    const int timeout = static_cast<int>(std::min<int64_t>(left.count(), 60'000));
    const Status status = PollOnce(now < *spun ? 0 : timeout);
    if (!status.ok()) {
      return status;
    }
  }
}

void PeerMesh::ListPolled() {
  polled_.assign(1, {wake_.get(), POLLIN, 0});
  polled_ranks_.assign(1, rank_);
  for (int rank = 0; rank < size(); ++rank) {
    const Peer& peer = peers_[rank];
    const bool reads = peer.has_incoming || peer.wanted > 0;
    const short events =
        static_cast<short>((reads ? POLLIN : 0) | (peer.out.empty() ? 0 : POLLOUT));
    if (events != 0) {
      polled_.push_back({peer.fd.get(), events, 0});
      polled_ranks_.push_back(rank);
    }
  }
}

Status PeerMesh::PollOnce(int timeout_ms) {
  ListPolled();
  const int timeout = wake_.valid() ? timeout_ms : std::min(timeout_ms, kBlindPollMilliseconds);
  const int ready = ::poll(polled_.data(), polled_.size(), timeout);
  MUSTER_CHECK(ready >= 0 || errno == EINTR, std::string("poll: ") + strerror(errno));
  for (size_t i = 1; i < polled_.size() && ready > 0; ++i) {
    const int rank = polled_ranks_[i];
    const short events = polled_[i].revents;
    Status status;
    if ((events & POLLOUT) != 0) {
      status = WriteTo(rank);
    }
    if (status.ok() && (events & (POLLIN | POLLHUP | POLLERR)) != 0) {
      const bool reads = peers_[rank].has_incoming || peers_[rank].wanted > 0;
      status = reads ? ReadFrom(rank) : WriteTo(rank);
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
