#pragma once

// GlooBackend: the operations over our own sockets between any members. Small groups reduce and
// gather directly (mesh_reduce.h, mesh_moves.h); Gloo's algorithms do the rest. See backend.h for
// the contract.
//
// Threads: as Backend.

#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "worker/collective/backend.h"
#include "worker/collective/group_links.h"
#include "worker/collective/mesh_reduce.h"
#include "worker/collective/peer_mesh.h"

namespace muster::worker {

class GlooContext;

class GlooBackend final : public Backend {
 public:
  /// `sockets`: connected and authenticated, by rank, none at `rank`.
  GlooBackend(int rank, std::vector<PrivateFd> sockets, std::chrono::microseconds spin);
  ~GlooBackend() override;

  Status Allreduce(const OpContext& context,
                   std::span<const Piece> pieces,
                   const Reduction& what) override;
  Status ReduceToRoot(const OpContext& context,
                      std::span<const Piece> pieces,
                      const Reduction& what,
                      void* accumulators,
                      int root) override;
  Status ReduceScatter(const OpContext& context,
                       const void* in,
                       void* out,
                       std::span<const size_t> counts,
                       const Reduction& what) override;
  Status Allgatherv(const OpContext& context,
                    const void* in,
                    void* out,
                    std::span<const size_t> byte_counts) override;
  Status Broadcast(const OpContext& context, void* inout, size_t bytes, int root) override;
  Status Alltoallv(const OpContext& context,
                   const void* in,
                   std::span<const size_t> send_bytes,
                   void* out,
                   std::span<const size_t> receive_bytes) override;
  Status Barrier(const OpContext& context) override;
  void Abort() override { mesh_.Abort(); }
  std::vector<int> suspects() const override { return mesh_.suspects(); }

  /// The outer half of a reduction in two levels: on accumulators, in place and from `in` to `out`.
  Status AllreduceAccumulators(const OpContext& context,
                               void* accumulators,
                               size_t count,
                               const Reduction& what);
  Status ReduceScatterAccumulators(const OpContext& context,
                                   const void* in,
                                   void* out,
                                   std::span<const size_t> counts,
                                   const Reduction& what);

 private:
  struct CachedContext {
    std::vector<int> ranks;
    std::shared_ptr<GlooContext> context;  // Shared because Gloo's options take it so.
  };

  /// The one place where exceptions end.
  Status Run(const OpContext& context, const std::function<void(const GroupLinks&)>& algorithm);
  const std::shared_ptr<GlooContext>& ContextOf(const OpContext& context);
  void RingAllreduce(const OpContext& context,
                     void* accumulators,
                     size_t count,
                     const kernels::ReducePlan& plan);
  void ReduceManyMembers(const OpContext& context,
                         std::span<const Piece> pieces,
                         const kernels::ReducePlan& plan);

  PeerMesh mesh_;
  std::list<CachedContext> contexts_;  // The newest first; bounded.
  ReduceScratch scratch_;
  ScratchBuffer accumulators_;  // Of a segment.
  Status dead_;                 // Why no operation is run any more.
};

/// `local_size`: ranks that share this machine's cores; 0: as many as there are sockets.
std::unique_ptr<GlooBackend> MakeGlooBackend(int rank,
                                             std::vector<PrivateFd> sockets,
                                             int local_size = 0);

}  // namespace muster::worker
