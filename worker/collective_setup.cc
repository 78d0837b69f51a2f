#include "worker/collective_setup.h"

#include <algorithm>
#include <utility>

#include "kernels/reduce.h"
#include "worker/collective/gloo_backend.h"
#include "worker/collective/hierarchical_backend.h"
#include "worker/collective/reduction_plan.h"
#include "worker/collective/shm_backend.h"
#include "worker/core/dtype.h"

namespace muster::worker {

BackendKind ChooseBackend(BackendChoice choice,
                          const std::vector<uint32_t>& hosts,
                          const std::vector<bool>& has_segment) {
  bool is_one_host = true;
  bool has_neighbours = false;
  bool can_share = true;  // Whoever has neighbours has memory in common with them.
  for (size_t rank = 1; rank < hosts.size(); ++rank) {
    const bool same = hosts[rank] == hosts[rank - 1];
    is_one_host = is_one_host && same;
    has_neighbours = has_neighbours || same;
    can_share = can_share && (!same || (has_segment[rank] && has_segment[rank - 1]));
  }
  if (choice == BackendChoice::kGloo || !can_share || hosts.size() == 1) {
    return BackendKind::kGloo;
  }
  if (is_one_host) {
    return choice == BackendChoice::kHierarchical ? BackendKind::kHierarchical : BackendKind::kShm;
  }
  return has_neighbours ? BackendKind::kHierarchical : BackendKind::kGloo;
}

WorldBackend MakeWorldBackend(const Place& place,
                              BackendKind kind,
                              const std::vector<uint32_t>& hosts,
                              std::shared_ptr<Segment> segment,
                              std::vector<PrivateFd> sockets) {
  if (kind == BackendKind::kGloo) {
    return {MakeGlooBackend(place.rank, std::move(sockets)), "gloo"};
  }
  std::vector<int> members;
  for (int i = 0; i < place.local_size; ++i) {
    members.push_back(place.rank - place.local_rank + i);
  }
  // One that is alone on its host has nobody to reach there, and no segment: nothing is asked of
  // its local backend.
  std::unique_ptr<Backend> local;
  if (place.local_size == 1) {
    local = MakeGlooBackend(place.rank, std::vector<PrivateFd>(hosts.size()));
  } else {
    local = MakeShmBackend(std::move(segment), members, place.local_rank);
  }
  if (kind == BackendKind::kShm) {
    return {std::move(local), "shared memory"};
  }
  return {std::make_unique<HierarchicalBackend>(std::move(local),
                                                MakeGlooBackend(place.rank, std::move(sockets)),
                                                std::vector<int>(hosts.begin(), hosts.end())),
          "hierarchical (shared memory inside hosts, gloo between them)"};
}

std::string ReduceSmall(const Signature& signature,
                        const std::vector<const std::string*>& inputs,
                        uint32_t divisor) {
  const kernels::ReducePlan plan = PlanOf(ReductionOf(signature, divisor));
  std::vector<const void*> data;
  size_t bytes = 0;
  for (const std::string* input : inputs) {
    data.push_back(input == nullptr ? nullptr : input->data());
    bytes = std::max(bytes, input == nullptr ? 0 : input->size());
  }
  std::string result(bytes, '\0');
  kernels::ReduceMany(
      plan, data.data(), data.size(), result.data(), bytes / ElementSize(signature.dtype));
  return result;
}

}  // namespace muster::worker
