#pragma once

// HierarchicalBackend: a backend inside each host, and Gloo between one leader per host: the first
// member of the group there. Hosts may have any number of members, one too; a group that lies on
// one host never leaves it. Reductions stay in accumulators until all hosts are in. See backend.h
// for the contract.
//
// Threads: as Backend.

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "worker/collective/backend.h"
#include "worker/collective/gloo_backend.h"

namespace muster::worker {

class HierarchicalBackend final : public Backend {
 public:
  /// `local` serves the ranks of this host, `across` all ranks; both know ranks of the world.
  /// `host_of_rank`: any number for each rank, equal on one host.
  HierarchicalBackend(std::unique_ptr<Backend> local,
                      std::unique_ptr<GlooBackend> across,
                      std::vector<int> host_of_rank);
  ~HierarchicalBackend() override;

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
  void Abort() override;
  std::vector<int> suspects() const override;

 private:
  struct Layout;
  class Steps;

  const Layout& LayoutOf(const Group& group);
  /// `plain` where the group is on one host, or has one member on each.
  Status Run(const OpContext& context,
             const std::function<Status(Backend&, const OpContext&)>& plain,
             const std::function<Status(Steps&)>& steps);
  Status ReduceInside(Steps& steps,
                      std::span<const Piece> pieces,
                      const Reduction& what,
                      void* accumulators,
                      int root);
  Status AllreduceRun(Steps& steps, std::span<const Piece> run, const Reduction& what);
  /// `slices`: by member, what each is to get.
  Status ScatterSlices(Steps& steps,
                       std::span<const Piece> slices,
                       void* out,
                       const Reduction& what);
  Status GatherByHost(Steps& steps,
                      const void* in,
                      char* gathered,
                      std::span<const size_t> byte_counts);

  const std::unique_ptr<Backend> local_;
  const std::unique_ptr<GlooBackend> across_;
  const std::vector<int> host_of_rank_;
  std::list<Layout> layouts_;  // The newest first; bounded.
  ScratchBuffer accumulators_;
  ScratchBuffer results_;
  std::atomic<bool> aborted_{false};
  Status dead_;  // Why no operation is run any more.
};

}  // namespace muster::worker
