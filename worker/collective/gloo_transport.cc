#include "worker/collective/gloo_transport.h"

#include <gloo/transport/pair.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "worker/collective/group_links.h"

namespace muster::worker {
namespace {

using std::chrono::milliseconds;

/// What the members of a group share with its context.
struct GroupView {
  PeerMesh& mesh;
  std::vector<int> ranks;  // Of the mesh, by index in the group.
  int self;
  const PeerMesh::Deadline& deadline;

  int RankOf(int member) const { return ranks[static_cast<size_t>(member)]; }
  int MemberOf(int rank) const {
    return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  }
};

class MeshBuffer final : public gloo::transport::UnboundBuffer {
 public:
  MeshBuffer(const GroupView& group, void* ptr, size_t size)
      : UnboundBuffer(ptr, size), group_(group) {}
  ~MeshBuffer() override { group_.mesh.Cancel(completions_); }

  bool waitRecv(int* rank, milliseconds) override { return Wait(completions_.received, rank); }
  bool waitSend(int* rank, milliseconds) override { return Wait(completions_.sent, rank); }
  // Nobody waits while another thread could call these: PeerMesh::Abort ends waits.
  void abortWaitRecv() override {}
  void abortWaitSend() override {}

  void send(int to, uint64_t slot, size_t offset, size_t bytes) override {
    bytes = Bound(offset, bytes);
    ThrowUnlessOk(group_.mesh.Send(group_.RankOf(to), slot, Data(offset), bytes, completions_));
  }
  void recv(int from, uint64_t slot, size_t offset, size_t bytes) override {
    bytes = Bound(offset, bytes);
    ThrowUnlessOk(
        group_.mesh.Receive(group_.RankOf(from), slot, Data(offset), bytes, completions_));
  }
  void recv(std::vector<int> from, uint64_t slot, size_t offset, size_t bytes) override {
    bytes = Bound(offset, bytes);
    for (int& member : from) {
      member = group_.RankOf(member);
    }
    ThrowUnlessOk(group_.mesh.Receive(std::move(from), slot, Data(offset), bytes, completions_));
  }

 private:
  char* Data(size_t offset) const { return static_cast<char*>(ptr) + offset; }

  size_t Bound(size_t offset, size_t bytes) const {
    const size_t rest = offset <= size ? size - offset : 0;
    const size_t bound = bytes == kUnspecifiedByteCount ? rest : bytes;
    if (offset > size || bound > rest) {
      throw MeshError(Status::Failed("an access beyond the end of a buffer"));
    }
    return bound;
  }

  bool Wait(std::deque<int>& completed, int* rank) {
    ThrowUnlessOk(group_.mesh.Wait(completed, group_.deadline));
    if (rank != nullptr) {
      *rank = group_.MemberOf(completed.front());
    }
    completed.pop_front();
    return true;
  }

  const GroupView& group_;
  PeerMesh::Completions completions_;
};

// Gloo's algorithms only ask whether there is a pair; the data goes through unbound buffers.
class MeshPair final : public gloo::transport::Pair {
 public:
  explicit MeshPair(int peer) : peer_(peer) {}

  const gloo::transport::Address& address() const override { throw Missing("addresses"); }
  void connect(const std::vector<char>&) override { throw Missing("connect()"); }
  void close() override {}
  void setSync(bool, bool) override {}
  std::unique_ptr<gloo::transport::Buffer> createSendBuffer(int, void*, size_t) override {
    throw Missing("bound buffers");
  }
  std::unique_ptr<gloo::transport::Buffer> createRecvBuffer(int, void*, size_t) override {
    throw Missing("bound buffers");
  }
  void send(gloo::transport::UnboundBuffer* buffer,
            uint64_t slot,
            size_t offset,
            size_t bytes) override {
    buffer->send(peer_, slot, offset, bytes);
  }
  void recv(gloo::transport::UnboundBuffer* buffer,
            uint64_t slot,
            size_t offset,
            size_t bytes) override {
    buffer->recv(peer_, slot, offset, bytes);
  }

 private:
  static MeshError Missing(const char* what) {
    return MeshError(Status::Failed(std::string("this transport has no ") + what));
  }

  const int peer_;
};

class MeshContext final : public gloo::transport::Context {
 public:
  explicit MeshContext(GroupView group)
      : Context(group.self, static_cast<int>(group.ranks.size())), group_(std::move(group)) {
    for (int peer = 0; peer < size; ++peer) {
      pairs_[peer] = peer == rank ? nullptr : std::make_unique<MeshPair>(peer);
    }
  }

  std::unique_ptr<gloo::transport::Pair>& createPair(int peer) override { return getPair(peer); }
  std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void* ptr,
                                                                      size_t bytes) override {
    return std::make_unique<MeshBuffer>(group_, ptr, bytes);
  }

 private:
  const GroupView group_;
};

}  // namespace

GlooContext::GlooContext(PeerMesh& mesh, const Group& group) : Context(group.self, group.size()) {
  transportContext_ =
      std::make_shared<MeshContext>(GroupView{mesh, group.ranks, group.self, deadline_});
  transportContext_->setTimeout(getTimeout());
}

void GlooContext::SetDeadline(PeerMesh::Deadline deadline) {
  deadline_ = deadline;
}

}  // namespace muster::worker
