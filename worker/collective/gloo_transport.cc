#include "worker/collective/gloo_transport.h"

#include <gloo/transport/pair.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace muster::worker {
namespace {

using std::chrono::milliseconds;

void ThrowUnlessOk(Status status) {
  if (!status.ok()) {
    throw MeshError(std::move(status));
  }
}

class MeshBuffer final : public gloo::transport::UnboundBuffer {
 public:
  MeshBuffer(PeerMesh& mesh, void* ptr, size_t size, milliseconds timeout)
      : UnboundBuffer(ptr, size), mesh_(mesh), timeout_(timeout) {}
  ~MeshBuffer() override { mesh_.Cancel(completions_); }

  bool waitRecv(int* rank, milliseconds timeout) override {
    return Wait(completions_.received, rank, timeout);
  }
  bool waitSend(int* rank, milliseconds timeout) override {
    return Wait(completions_.sent, rank, timeout);
  }
  // Nobody waits while another thread could call these: PeerMesh::Abort ends waits.
  void abortWaitRecv() override {}
  void abortWaitSend() override {}

  void send(int to, uint64_t slot, size_t offset, size_t bytes) override {
    bytes = Bound(offset, bytes);
    ThrowUnlessOk(mesh_.Send(to, slot, Data(offset), bytes, completions_));
  }
  void recv(int from, uint64_t slot, size_t offset, size_t bytes) override {
    recv(std::vector<int>{from}, slot, offset, bytes);
  }
  void recv(std::vector<int> from, uint64_t slot, size_t offset, size_t bytes) override {
    bytes = Bound(offset, bytes);
    ThrowUnlessOk(mesh_.Receive(std::move(from), slot, Data(offset), bytes, completions_));
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

  bool Wait(std::deque<int>& completed, int* rank, milliseconds timeout) {
    const milliseconds limit = timeout.count() < 0 ? timeout_ : timeout;
    ThrowUnlessOk(mesh_.Wait(completed, std::chrono::steady_clock::now() + limit));
    if (rank != nullptr) {
      *rank = completed.front();
    }
    completed.pop_front();
    return true;
  }

  PeerMesh& mesh_;
  const milliseconds timeout_;
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
  explicit MeshContext(PeerMesh& mesh) : Context(mesh.rank(), mesh.size()), mesh_(mesh) {
    for (int peer = 0; peer < mesh.size(); ++peer) {
      pairs_[peer] = peer == mesh.rank() ? nullptr : std::make_unique<MeshPair>(peer);
    }
  }

  std::unique_ptr<gloo::transport::Pair>& createPair(int peer) override { return getPair(peer); }
  std::unique_ptr<gloo::transport::UnboundBuffer> createUnboundBuffer(void* ptr,
                                                                      size_t size) override {
    return std::make_unique<MeshBuffer>(mesh_, ptr, size, getTimeout());
  }

 private:
  PeerMesh& mesh_;
};

}  // namespace

GlooContext::GlooContext(PeerMesh& mesh) : Context(mesh.rank(), mesh.size()) {
  transportContext_ = std::make_shared<MeshContext>(mesh);
  transportContext_->setTimeout(getTimeout());
}

}  // namespace muster::worker
