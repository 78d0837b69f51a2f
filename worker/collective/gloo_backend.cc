#include "worker/collective/gloo_backend.h"

#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <numeric>
#include <string>
#include <thread>
#include <utility>

#include "worker/collective/gloo_transport.h"
#include "worker/collective/mesh_moves.h"
#include "worker/collective/pieces.h"
#include "worker/collective/reduction_plan.h"

namespace muster::worker {
namespace {

// In a larger group too much would be on its way to one member at a time: rings are kinder to a
// network. (Gloo's BCUBE has fewer steps, but reads beyond buffers of few elements.)
constexpr int kDirectMembersMax = 16;
// What is small goes directly in any group.
constexpr size_t kRingBytesMin = 256u << 10;
// What a large group reduces at a time.
constexpr size_t kSegmentBytes = 8u << 20;
// From here on, for each member, a broadcast goes along a chain.
constexpr size_t kChainBytesMin = 64u << 10;
constexpr size_t kContextsMax = 64;
constexpr std::chrono::microseconds kSpin{50};

bool IsDirect(int members, size_t bytes) {
  return members <= kDirectMembersMax || bytes < kRingBytesMin;
}

uint32_t TagOf(const OpContext& context) {
  return static_cast<uint32_t>(context.number);
}

/// Gloo takes from the type of its buffers only the size.
template <size_t kBytes>
struct Opaque {
  std::array<char, kBytes> bytes;
};

void SetOutput(gloo::AllreduceOptions& options, void* data, size_t count, size_t size) {
  switch (size) {
    case 1:
      return options.setOutput(static_cast<Opaque<1>*>(data), count);
    case 2:
      return options.setOutput(static_cast<Opaque<2>*>(data), count);
    case 4:
      return options.setOutput(static_cast<Opaque<4>*>(data), count);
    case 8:
      return options.setOutput(static_cast<Opaque<8>*>(data), count);
    default:
      return options.setOutput(static_cast<Opaque<16>*>(data), count);
  }
}

/// A group of one: what remains are the factors and the copy.
void ReduceAlone(std::span<const Piece> pieces, const kernels::ReducePlan& plan) {
  for (const Piece& piece : pieces) {
    if (piece.count > 0 && piece.out != nullptr) {
      kernels::ReduceMany(plan, &piece.in, 1, piece.out, piece.count);
    }
  }
}

}  // namespace

GlooBackend::GlooBackend(int rank, std::vector<PrivateFd> sockets, std::chrono::microseconds spin)
    : mesh_(rank, std::move(sockets), spin) {}

GlooBackend::~GlooBackend() = default;

// ---------------------------------------------------------------- reductions

Status GlooBackend::Allreduce(const OpContext& context,
                              std::span<const Piece> pieces,
                              const Reduction& what) {
  return Run(context, [&](const GroupLinks& links) {
    const kernels::ReducePlan plan = PlanOf(what);
    if (links.size() == 1) {
      ReduceAlone(pieces, plan);
    } else if (IsDirect(links.size(), CountOf(pieces) * kernels::SizeOf(plan.type))) {
      MeshAllreduce(links, pieces, Combiner(plan, Combiner::Form::kStored), scratch_);
    } else {
      ReduceManyMembers(context, pieces, plan);
    }
  });
}

void GlooBackend::ReduceManyMembers(const OpContext& context,
                                    std::span<const Piece> pieces,
                                    const kernels::ReducePlan& plan) {
  const size_t element = kernels::SizeOf(plan.type);
  const size_t wide = kernels::AccumulatorSize(plan);
  PieceRuns runs(pieces, element, kSegmentBytes / wide);
  std::vector<Piece> run;
  for (runs.Next(run); !run.empty(); runs.Next(run)) {
    const size_t count = CountOf(run);
    const bool in_place = kernels::IsDirect(plan) && run.size() == 1 && run[0].out != nullptr;
    void* accumulators = in_place ? run[0].out : accumulators_.Get(count * wide);
    auto* at = static_cast<char*>(accumulators);
    for (const Piece& piece : run) {
      if (piece.in == nullptr) {
        // Zeros are zeros in each accumulator, whatever the factor.
        std::memset(at, 0, piece.count * wide);
      } else if (piece.in != at) {
        kernels::Widen(plan, piece.in, at, piece.count);
      }
      at += piece.count * wide;
    }
    RingAllreduce(context, accumulators, count, plan);
    at = static_cast<char*>(accumulators);
    for (const Piece& piece : run) {
      if (piece.out != nullptr && piece.out != at) {
        kernels::Narrow(plan, at, piece.out, piece.count);
      }
      at += piece.count * wide;
    }
  }
}

// Each element is reduced on one rank and copied to the others: the same bits for all.
void GlooBackend::RingAllreduce(const OpContext& context,
                                void* accumulators,
                                size_t count,
                                const kernels::ReducePlan& plan) {
  const size_t size = kernels::AccumulatorSize(plan);
  gloo::AllreduceOptions options(ContextOf(context));
  options.setTag(TagOf(context));
  options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
  SetOutput(options, accumulators, count, size);
  options.setReduceFunction([&plan](void* out, const void* a, const void* b, size_t elements) {
    kernels::Combine(plan, out, a, b, elements);
  });
  gloo::allreduce(options);
}

Status GlooBackend::ReduceToRoot(const OpContext& context,
                                 std::span<const Piece> pieces,
                                 const Reduction& what,
                                 void* accumulators,
                                 int root) {
  return Run(context, [&](const GroupLinks& links) {
    const Combiner combiner(PlanOf(what), Combiner::Form::kToAccumulators);
    MeshReduceToRoot(links, pieces, combiner, accumulators, root, scratch_);
  });
}

Status GlooBackend::AllreduceAccumulators(const OpContext& context,
                                          void* accumulators,
                                          size_t count,
                                          const Reduction& what) {
  return Run(context, [&](const GroupLinks& links) {
    const kernels::ReducePlan plan = PlanOf(what);
    if (links.size() == 1 || count == 0) {
      return;
    }
    if (!IsDirect(links.size(), count * kernels::AccumulatorSize(plan))) {
      RingAllreduce(context, accumulators, count, plan);
      return;
    }
    const Piece piece{accumulators, accumulators, count};
    MeshAllreduce(links, {&piece, 1}, Combiner(plan, Combiner::Form::kAccumulators), scratch_);
  });
}

Status GlooBackend::ReduceScatter(const OpContext& context,
                                  const void* in,
                                  void* out,
                                  std::span<const size_t> counts,
                                  const Reduction& what) {
  return Run(context, [&](const GroupLinks& links) {
    const Combiner combiner(PlanOf(what), Combiner::Form::kStored);
    MeshReduceScatter(links, in, out, counts, combiner, scratch_);
  });
}

Status GlooBackend::ReduceScatterAccumulators(const OpContext& context,
                                              const void* in,
                                              void* out,
                                              std::span<const size_t> counts,
                                              const Reduction& what) {
  return Run(context, [&](const GroupLinks& links) {
    const Combiner combiner(PlanOf(what), Combiner::Form::kAccumulators);
    MeshReduceScatter(links, in, out, counts, combiner, scratch_);
  });
}

// ---------------------------------------------------------------- moves

Status GlooBackend::Allgatherv(const OpContext& context,
                               const void* in,
                               void* out,
                               std::span<const size_t> byte_counts) {
  return Run(context, [&](const GroupLinks& links) {
    const size_t bytes = std::accumulate(byte_counts.begin(), byte_counts.end(), size_t{0});
    if (IsDirect(links.size(), bytes)) {
      MeshAllgatherv(links, in, out, byte_counts);
      return;
    }
    gloo::AllgathervOptions options(ContextOf(context));
    options.setTag(TagOf(context));
    // Gloo only reads the input.
    options.setInput(static_cast<char*>(const_cast<void*>(in)),
                     byte_counts[static_cast<size_t>(links.self())]);
    options.setOutput(static_cast<char*>(out),
                      std::vector<size_t>(byte_counts.begin(), byte_counts.end()));
    gloo::allgatherv(options);
  });
}

Status GlooBackend::Broadcast(const OpContext& context, void* inout, size_t bytes, int root) {
  return Run(context, [&](const GroupLinks& links) {
    if (links.size() == 1 || bytes == 0) {
      return;
    }
    if (bytes >= kChainBytesMin * static_cast<size_t>(links.size())) {
      MeshBroadcastChain(links, inout, bytes, root);
      return;
    }
    gloo::BroadcastOptions options(ContextOf(context));
    options.setTag(TagOf(context));
    options.setRoot(root);
    options.setOutput(static_cast<char*>(inout), bytes);
    gloo::broadcast(options);
  });
}

Status GlooBackend::Alltoallv(const OpContext& context,
                              const void* in,
                              std::span<const size_t> send_bytes,
                              void* out,
                              std::span<const size_t> receive_bytes) {
  return Run(context, [&](const GroupLinks& links) {
    MeshAlltoallv(links, in, send_bytes, out, receive_bytes);
  });
}

Status GlooBackend::Barrier(const OpContext& context) {
  return Run(context, [&](const GroupLinks& links) {
    if (links.size() == 1) {
      return;
    }
    gloo::BarrierOptions options(ContextOf(context));
    options.setTag(TagOf(context));
    gloo::barrier(options);
  });
}

// ---------------------------------------------------------------- running

Status GlooBackend::Run(const OpContext& context,
                        const std::function<void(const GroupLinks&)>& algorithm) {
  Status alive = mesh_.Check();
  if (!alive.ok() || !dead_.ok()) {
    return alive.ok() ? dead_ : alive;
  }
  try {
    algorithm(GroupLinks(mesh_, context));
  } catch (const MeshError& error) {
    dead_ = error.status;
  } catch (const std::exception& error) {
    dead_ = Status::Failed(std::string("gloo: ") + error.what());
  }
  return dead_;
}

const std::shared_ptr<GlooContext>& GlooBackend::ContextOf(const OpContext& context) {
  const std::vector<int>& ranks = context.group.ranks;
  auto it = std::find_if(contexts_.begin(), contexts_.end(), [&](const CachedContext& cached) {
    return cached.ranks == ranks;
  });
  if (it == contexts_.end()) {
    contexts_.push_front({ranks, std::make_shared<GlooContext>(mesh_, context.group)});
    if (contexts_.size() > kContextsMax) {
      contexts_.pop_back();
    }
  } else {
    contexts_.splice(contexts_.begin(), contexts_, it);
  }
  contexts_.front().context->SetDeadline(context.deadline);
  return contexts_.front().context;
}

std::unique_ptr<GlooBackend> MakeGlooBackend(int rank,
                                             std::vector<PrivateFd> sockets,
                                             int local_size) {
  const size_t sharing = local_size > 0 ? static_cast<size_t>(local_size) : sockets.size();
  const bool has_cores = sharing <= std::thread::hardware_concurrency();
  return std::make_unique<GlooBackend>(
      rank, std::move(sockets), has_cores ? kSpin : std::chrono::microseconds(0));
}

}  // namespace muster::worker
