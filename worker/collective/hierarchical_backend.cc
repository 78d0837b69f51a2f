#include "worker/collective/hierarchical_backend.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "worker/collective/pieces.h"
#include "worker/collective/reduction_plan.h"

namespace muster::worker {
namespace {

// What all hosts reduce at a time, in accumulators: it stays in the cache between the steps, and
// bounds the memory. A broadcast needs none.
constexpr size_t kRunBytes = 1u << 20;
constexpr size_t kPassedOnBytes = 4u << 20;
constexpr size_t kLayoutsMax = 64;
// Steps of one operation, so that each backend sees numbers that grow.
constexpr int kStepBits = 24;

}  // namespace

// ---------------------------------------------------------------- who does what

/// A group, host by host.
struct HierarchicalBackend::Layout {
  std::vector<int> ranks;                 // Of the group.
  std::vector<std::vector<int>> members;  // Indices in the group, by host, in growing order.
  size_t host = 0;                        // This one's place in `members`.
  Group local;
  Group leaders;           // self is -1 where this rank is none.
  bool is_leader = false;  // Of its host.
  bool in_order = true;    // The members of a host stand next to each other in the group.

  Layout(const Group& group, std::span<const int> host_of_rank);

  bool is_one_host() const { return members.size() == 1; }
  bool is_flat() const { return members.size() == ranks.size(); }
  bool is_alone() const { return local.size() == 1; }
  /// Place in `members` of the host of a member.
  size_t HostOf(int member) const;
  /// One member per host, in the order of the hosts: the leader, but `root` for its own host.
  Group Speakers(int root) const;
  /// The speaker of this host, as index in `local`.
  int LocalSpeaker(int root) const;
};

HierarchicalBackend::Layout::Layout(const Group& group, std::span<const int> host_of_rank)
    : ranks(group.ranks) {
  std::vector<int> hosts;
  for (int member = 0; member < group.size(); ++member) {
    const int id = host_of_rank[static_cast<size_t>(ranks[static_cast<size_t>(member)])];
    const auto known = std::find(hosts.begin(), hosts.end(), id);
    const auto place = static_cast<size_t>(known - hosts.begin());
    if (known == hosts.end()) {
      hosts.push_back(id);
      members.emplace_back();
    }
    in_order = in_order && place + 1 == members.size();
    members[place].push_back(member);
  }
  host = HostOf(group.self);
  const auto rank_of = [&](int member) { return ranks[static_cast<size_t>(member)]; };
  for (const int member : members[host]) {
    if (member == group.self) {
      local.self = local.size();
    }
    local.ranks.push_back(rank_of(member));
  }
  is_leader = local.self == 0;
  // Hosts stand in the order of their first members, so their leaders' ranks grow.
  for (const auto& on_host : members) {
    leaders.ranks.push_back(rank_of(on_host[0]));
  }
  leaders.self = is_leader ? static_cast<int>(host) : -1;
}

size_t HierarchicalBackend::Layout::HostOf(int member) const {
  const auto holds = [&](const std::vector<int>& on_host) {
    return std::binary_search(on_host.begin(), on_host.end(), member);
  };
  return static_cast<size_t>(std::find_if(members.begin(), members.end(), holds) - members.begin());
}

Group HierarchicalBackend::Layout::Speakers(int root) const {
  Group speakers = leaders;
  speakers.ranks[HostOf(root)] = ranks[static_cast<size_t>(root)];
  const bool speaks = local.self == LocalSpeaker(root);
  speakers.self = speaks ? static_cast<int>(host) : -1;
  return speakers;
}

int HierarchicalBackend::Layout::LocalSpeaker(int root) const {
  const std::vector<int>& here = members[host];
  const auto it = std::find(here.begin(), here.end(), root);
  return it == here.end() ? 0 : static_cast<int>(it - here.begin());
}

/// The steps of one operation. Those inside a host are numbered apart from those between hosts,
/// since only leaders take part in the latter.
class HierarchicalBackend::Steps {
 public:
  Steps(const OpContext& context, const Layout& layout)
      : layout_(layout),
        deadline_(context.deadline),
        inside_(context.number << kStepBits),
        between_(inside_) {}

  const Layout& layout() const { return layout_; }
  // Later than between hosts: who waits for its leader must not blame it for another host's silence
  // before the leader itself can say whose it is.
  OpContext Inside() { return {layout_.local, inside_++, deadline_ + std::chrono::seconds(1)}; }
  OpContext Between(const Group& group) { return {group, between_++, deadline_}; }
  OpContext BetweenLeaders() { return Between(layout_.leaders); }

 private:
  const Layout& layout_;
  const std::chrono::steady_clock::time_point deadline_;
  uint64_t inside_;
  uint64_t between_;
};

HierarchicalBackend::HierarchicalBackend(std::unique_ptr<Backend> local,
                                         std::unique_ptr<GlooBackend> across,
                                         std::vector<int> host_of_rank)
    : local_(std::move(local)),
      across_(std::move(across)),
      host_of_rank_(std::move(host_of_rank)) {}

HierarchicalBackend::~HierarchicalBackend() = default;

const HierarchicalBackend::Layout& HierarchicalBackend::LayoutOf(const Group& group) {
  const auto it = std::find_if(layouts_.begin(), layouts_.end(), [&](const Layout& layout) {
    return layout.ranks == group.ranks;
  });
  if (it != layouts_.end()) {
    layouts_.splice(layouts_.begin(), layouts_, it);
  } else {
    layouts_.emplace_front(group, host_of_rank_);
    if (layouts_.size() > kLayoutsMax) {
      layouts_.pop_back();
    }
  }
  return layouts_.front();
}

Status HierarchicalBackend::Run(const OpContext& context,
                                const std::function<Status(Backend&, const OpContext&)>& plain,
                                const std::function<Status(Steps&)>& steps) {
  if (aborted_.load(std::memory_order_acquire)) {
    return Status(StatusCode::kAborted, "the generation was revoked");
  }
  if (!dead_.ok()) {
    return dead_;
  }
  const Layout& layout = LayoutOf(context.group);
  Steps numbered(context, layout);
  if (layout.is_flat()) {
    dead_ = plain(*across_, numbered.Between(context.group));
  } else if (layout.is_one_host()) {
    dead_ = plain(*local_, numbered.Inside());
  } else {
    dead_ = steps(numbered);
  }
  return dead_;
}

void HierarchicalBackend::Abort() {
  aborted_.store(true, std::memory_order_release);
  local_->Abort();
  across_->Abort();
}

std::vector<int> HierarchicalBackend::suspects() const {
  std::set<int> all;
  for (const auto& part : {local_->suspects(), across_->suspects()}) {
    all.insert(part.begin(), part.end());
  }
  return {all.begin(), all.end()};
}

// ---------------------------------------------------------------- reductions

Status HierarchicalBackend::ReduceInside(Steps& steps,
                                         std::span<const Piece> pieces,
                                         const Reduction& what,
                                         void* accumulators,
                                         int root) {
  if (!steps.layout().is_alone()) {
    return local_->ReduceToRoot(steps.Inside(), pieces, what, accumulators, root);
  }
  const kernels::ReducePlan plan = PlanOf(what);
  const size_t wide = kernels::AccumulatorSize(plan);
  auto* at = static_cast<char*>(accumulators);
  for (const Piece& piece : pieces) {
    if (piece.in == nullptr) {
      std::memset(at, 0, piece.count * wide);
    } else {
      kernels::Widen(plan, piece.in, at, piece.count);
    }
    at += piece.count * wide;
  }
  return Status::Ok();
}

Status HierarchicalBackend::Allreduce(const OpContext& context,
                                      std::span<const Piece> pieces,
                                      const Reduction& what) {
  const auto plain = [&](Backend& backend, const OpContext& numbered) {
    return backend.Allreduce(numbered, pieces, what);
  };
  return Run(context, plain, [&](Steps& steps) {
    const kernels::ReducePlan plan = PlanOf(what);
    PieceRuns runs(pieces, kernels::SizeOf(plan.type), kRunBytes / kernels::AccumulatorSize(plan));
    std::vector<Piece> run;
    Status status;
    for (runs.Next(run); !run.empty() && status.ok(); runs.Next(run)) {
      status = AllreduceRun(steps, run, what);
    }
    return status;
  });
}

Status HierarchicalBackend::AllreduceRun(Steps& steps,
                                         std::span<const Piece> run,
                                         const Reduction& what) {
  const Layout& layout = steps.layout();
  const kernels::ReducePlan plan = PlanOf(what);
  const size_t element = kernels::SizeOf(plan.type);
  const size_t count = CountOf(run);
  void* accumulators =
      layout.is_leader ? accumulators_.Get(count * kernels::AccumulatorSize(plan)) : nullptr;
  const bool in_place = run.size() == 1 && run[0].out != nullptr;
  void* result = in_place ? run[0].out : results_.Get(count * element);
  Status status = ReduceInside(steps, run, what, accumulators, 0);
  if (status.ok() && layout.is_leader) {
    status = across_->AllreduceAccumulators(steps.BetweenLeaders(), accumulators, count, what);
    if (status.ok()) {
      kernels::Narrow(plan, accumulators, result, count);
    }
  }
  if (status.ok() && !layout.is_alone()) {
    status = local_->Broadcast(steps.Inside(), result, count * element, 0);
  }
  if (status.ok()) {
    Unpack(result, run, element);
  }
  return status;
}

Status HierarchicalBackend::ReduceToRoot(const OpContext& context,
                                         std::span<const Piece> pieces,
                                         const Reduction& what,
                                         void* accumulators,
                                         int root) {
  const auto plain = [&](Backend& backend, const OpContext& numbered) {
    return backend.ReduceToRoot(numbered, pieces, what, accumulators, root);
  };
  return Run(context, plain, [&](Steps& steps) {
    const Layout& layout = steps.layout();
    const kernels::ReducePlan plan = PlanOf(what);
    const size_t wide = kernels::AccumulatorSize(plan);
    const Group speakers = layout.Speakers(root);
    PieceRuns runs(pieces, kernels::SizeOf(plan.type), kRunBytes / wide);
    std::vector<Piece> run;
    Status status;
    auto* at = static_cast<char*>(accumulators);
    for (runs.Next(run); !run.empty() && status.ok(); runs.Next(run)) {
      const size_t count = CountOf(run);
      const bool is_root = context.group.self == root;
      char* to = is_root ? at : accumulators_.Get(count * wide);
      status = ReduceInside(steps, run, what, to, layout.LocalSpeaker(root));
      if (status.ok() && speakers.self >= 0) {
        status = across_->AllreduceAccumulators(steps.Between(speakers), to, count, what);
      }
      at += is_root ? count * wide : 0;
    }
    return status;
  });
}

Status HierarchicalBackend::ReduceScatter(const OpContext& context,
                                          const void* in,
                                          void* out,
                                          std::span<const size_t> counts,
                                          const Reduction& what) {
  const auto plain = [&](Backend& backend, const OpContext& numbered) {
    return backend.ReduceScatter(numbered, in, out, counts, what);
  };
  return Run(context, plain, [&](Steps& steps) {
    const kernels::ReducePlan plan = PlanOf(what);
    const size_t element = kernels::SizeOf(plan.type);
    const size_t slice =
        std::max<size_t>(1, kRunBytes / kernels::AccumulatorSize(plan) / counts.size());
    std::vector<size_t> begins(counts.size(), 0);
    for (size_t i = 1; i < counts.size(); ++i) {
      begins[i] = begins[i - 1] + counts[i - 1];
    }
    const size_t longest = *std::max_element(counts.begin(), counts.end());
    Status status;
    for (size_t done = 0; done < longest && status.ok(); done += slice) {
      std::vector<Piece> slices;  // By member.
      for (size_t i = 0; i < counts.size(); ++i) {
        const size_t from = std::min(done, counts[i]);
        slices.push_back({static_cast<const char*>(in) + (begins[i] + from) * element,
                          nullptr,
                          std::min(slice, counts[i] - from)});
      }
      auto* at = out == nullptr ? nullptr : static_cast<char*>(out) + done * element;
      status = ScatterSlices(steps, slices, at, what);
    }
    return status;
  });
}

Status HierarchicalBackend::ScatterSlices(Steps& steps,
                                          std::span<const Piece> slices,
                                          void* out,
                                          const Reduction& what) {
  const Layout& layout = steps.layout();
  const kernels::ReducePlan plan = PlanOf(what);
  const size_t element = kernels::SizeOf(plan.type);
  const size_t wide = kernels::AccumulatorSize(plan);
  // What goes to one host stands together.
  std::vector<Piece> by_host;
  std::vector<size_t> host_counts;
  for (const auto& on_host : layout.members) {
    host_counts.push_back(0);
    for (const int member : on_host) {
      by_host.push_back(slices[static_cast<size_t>(member)]);
      host_counts.back() += by_host.back().count;
    }
  }
  const size_t total = CountOf(slices);
  const size_t own = host_counts[layout.host];
  char* accumulators = layout.is_leader ? accumulators_.Get((total + own) * wide) : nullptr;
  char* results = results_.Get(own * element);
  Status status = ReduceInside(steps, by_host, what, accumulators, 0);
  if (status.ok() && layout.is_leader) {
    char* reduced = accumulators + total * wide;
    status = across_->ReduceScatterAccumulators(
        steps.BetweenLeaders(), accumulators, reduced, host_counts, what);
    if (status.ok()) {
      kernels::Narrow(plan, reduced, layout.is_alone() ? out : results, own);
    }
  }
  if (!status.ok() || layout.is_alone()) {
    return status;
  }
  std::vector<size_t> sent(layout.members[layout.host].size(), 0);
  std::vector<size_t> received(sent.size(), 0);
  for (size_t i = 0; i < sent.size(); ++i) {
    const auto member = static_cast<size_t>(layout.members[layout.host][i]);
    const size_t bytes = slices[member].count * element;
    sent[i] = layout.is_leader ? bytes : 0;
    received[0] = static_cast<int>(i) == layout.local.self ? bytes : received[0];
  }
  return local_->Alltoallv(steps.Inside(), results, sent, out, received);
}

// ---------------------------------------------------------------- moves

Status HierarchicalBackend::Allgatherv(const OpContext& context,
                                       const void* in,
                                       void* out,
                                       std::span<const size_t> byte_counts) {
  const auto plain = [&](Backend& backend, const OpContext& numbered) {
    return backend.Allgatherv(numbered, in, out, byte_counts);
  };
  return Run(context, plain, [&](Steps& steps) {
    if (steps.layout().in_order) {
      return GatherByHost(steps, in, static_cast<char*>(out), byte_counts);
    }
    size_t total = 0;
    std::vector<size_t> places;
    for (const size_t bytes : byte_counts) {
      places.push_back(total);
      total += bytes;
    }
    const auto gathered = std::make_unique_for_overwrite<char[]>(total);
    Status status = GatherByHost(steps, in, gathered.get(), byte_counts);
    const char* from = gathered.get();
    for (const auto& on_host : steps.layout().members) {
      for (const int member : on_host) {
        const auto i = static_cast<size_t>(member);
        if (status.ok() && byte_counts[i] > 0) {
          std::memcpy(static_cast<char*>(out) + places[i], from, byte_counts[i]);
        }
        from += byte_counts[i];
      }
    }
    return status;
  });
}

/// Into `gathered`, in the order of the hosts.
Status HierarchicalBackend::GatherByHost(Steps& steps,
                                         const void* in,
                                         char* gathered,
                                         std::span<const size_t> byte_counts) {
  const Layout& layout = steps.layout();
  std::vector<size_t> host_bytes;
  std::vector<size_t> local_bytes;
  size_t before = 0;  // This host.
  size_t total = 0;
  for (size_t host = 0; host < layout.members.size(); ++host) {
    before = host == layout.host ? total : before;
    host_bytes.push_back(0);
    for (const int member : layout.members[host]) {
      const size_t bytes = byte_counts[static_cast<size_t>(member)];
      host_bytes.back() += bytes;
      if (host == layout.host) {
        local_bytes.push_back(bytes);
      }
    }
    total += host_bytes.back();
  }
  char* block = gathered + before;
  const size_t own = host_bytes[layout.host];
  if (layout.is_alone()) {
    return across_->Allgatherv(steps.BetweenLeaders(), in, gathered, host_bytes);
  }
  Status status = local_->Allgatherv(steps.Inside(), in, block, local_bytes);
  if (status.ok() && layout.is_leader) {
    status = across_->Allgatherv(steps.BetweenLeaders(), block, gathered, host_bytes);
  }
  if (status.ok() && before > 0) {
    status = local_->Broadcast(steps.Inside(), gathered, before, 0);
  }
  if (status.ok() && before + own < total) {
    status = local_->Broadcast(steps.Inside(), block + own, total - before - own, 0);
  }
  return status;
}

Status HierarchicalBackend::Broadcast(const OpContext& context,
                                      void* inout,
                                      size_t bytes,
                                      int root) {
  const auto plain = [&](Backend& backend, const OpContext& numbered) {
    return backend.Broadcast(numbered, inout, bytes, root);
  };
  return Run(context, plain, [&](Steps& steps) {
    const Layout& layout = steps.layout();
    const Group speakers = layout.Speakers(root);
    const auto speaking_root = static_cast<int>(layout.HostOf(root));
    Status status;
    for (size_t done = 0; done < bytes && status.ok(); done += kPassedOnBytes) {
      char* at = static_cast<char*>(inout) + done;
      const size_t now = std::min(kPassedOnBytes, bytes - done);
      if (speakers.self >= 0) {
        status = across_->Broadcast(steps.Between(speakers), at, now, speaking_root);
      }
      if (status.ok() && !layout.is_alone()) {
        status = local_->Broadcast(steps.Inside(), at, now, layout.LocalSpeaker(root));
      }
    }
    return status;
  });
}

Status HierarchicalBackend::Alltoallv(const OpContext& context,
                                      const void* in,
                                      std::span<const size_t> send_bytes,
                                      void* out,
                                      std::span<const size_t> receive_bytes) {
  const auto plain = [&](Backend& backend, const OpContext& numbered) {
    return backend.Alltoallv(numbered, in, send_bytes, out, receive_bytes);
  };
  // Every byte has one target: nothing is saved by way of a leader.
  return Run(
      context, plain, [&](Steps& steps) { return plain(*across_, steps.Between(context.group)); });
}

Status HierarchicalBackend::Barrier(const OpContext& context) {
  const auto plain = [](Backend& backend, const OpContext& numbered) {
    return backend.Barrier(numbered);
  };
  return Run(context, plain, [&](Steps& steps) {
    const Layout& layout = steps.layout();
    Status status;
    if (!layout.is_alone()) {
      status = local_->Barrier(steps.Inside());
    }
    if (status.ok() && layout.is_leader) {
      status = across_->Barrier(steps.BetweenLeaders());
    }
    if (status.ok() && !layout.is_alone()) {
      status = local_->Barrier(steps.Inside());
    }
    return status;
  });
}

}  // namespace muster::worker
