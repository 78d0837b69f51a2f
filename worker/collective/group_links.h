#pragma once

// GroupLinks: a PeerMesh as the members of one group see it during one operation: peers by their
// index in the group, messages numbered so that no operation takes another's. Errors leave as
// MeshError, through the algorithms (ours and Gloo's), to the backend, which turns them back into
// a Status. Messages without bytes are not sent: both sides know the sizes.
//
// Threads: as PeerMesh.

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <utility>

#include "worker/collective/backend.h"
#include "worker/collective/peer_mesh.h"

namespace muster::worker {

struct MeshError : std::runtime_error {
  explicit MeshError(Status why) : std::runtime_error(why.message()), status(std::move(why)) {}
  Status status;
};

inline void ThrowUnlessOk(Status status) {
  if (!status.ok()) {
    throw MeshError(std::move(status));
  }
}

class GroupLinks {
 public:
  /// Both outlive it.
  GroupLinks(PeerMesh& mesh, const OpContext& context) : mesh_(mesh), context_(context) {}

  int self() const { return context_.group.self; }
  int size() const { return context_.group.size(); }
  PeerMesh& mesh() const { return mesh_; }
  PeerMesh::Deadline deadline() const { return context_.deadline; }
  int RankOf(int member) const { return context_.group.ranks[static_cast<size_t>(member)]; }
  /// The member that is `distance` behind this one, around the end.
  int After(int distance) const { return (self() + distance) % size(); }
  int Before(int distance) const { return (self() + size() - distance) % size(); }
  /// Messages of one operation between two members come in the order in which they were sent.
  uint64_t slot() const { return kSlotBit | context_.number; }

 private:
  // Gloo's slots begin with the number of a kind of operation, which is small.
  static constexpr uint64_t kSlotBit = uint64_t{1} << 63;

  PeerMesh& mesh_;
  const OpContext& context_;
};

/// Messages that are waited for together. One that is destroyed before they are complete (when an
/// error passes) breaks the mesh, so that nothing is written through its pointers any more.
class Batch {
 public:
  explicit Batch(const GroupLinks& links) : links_(links) {}
  ~Batch() { links_.mesh().Cancel(completions_); }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  void Send(int member, const void* data, size_t bytes) {
    if (bytes > 0) {
      ++sends_;
      ThrowUnlessOk(
          links_.mesh().Send(links_.RankOf(member), links_.slot(), data, bytes, completions_));
    }
  }
  void Receive(int member, void* data, size_t bytes) {
    if (bytes > 0) {
      ++receives_;
      ThrowUnlessOk(
          links_.mesh().Receive(links_.RankOf(member), links_.slot(), data, bytes, completions_));
    }
  }
  void WaitReceived() { WaitReceived(receives_); }
  /// The first `count`, where all come from one member.
  void WaitReceived(size_t count) {
    ThrowUnlessOk(links_.mesh().Wait(completions_.received, links_.deadline(), count));
  }
  void WaitSent() {
    ThrowUnlessOk(links_.mesh().Wait(completions_.sent, links_.deadline(), sends_));
  }
  void WaitAll() {
    WaitReceived();
    WaitSent();
    completions_.received.clear();
    completions_.sent.clear();
    receives_ = sends_ = 0;
  }

 private:
  const GroupLinks& links_;
  PeerMesh::Completions completions_;
  size_t sends_ = 0;
  size_t receives_ = 0;
};

}  // namespace muster::worker
