#include "launcher/agent/world_placement.h"

#include <algorithm>
#include <string>

namespace muster::launcher {
namespace {

/// By local rank: how many of the first `host_count` hosts have a worker with it. No host is empty.
std::vector<uint32_t> HostsWithLocalRank(const v1::Layout& layout,
                                         int host_count,
                                         uint32_t local_size) {
  std::vector<uint32_t> hosts(local_size);
  for (int host = 0; host < host_count; ++host) {
    ++hosts[std::min(layout.host_sizes(host), local_size) - 1];  // Its highest local rank.
  }
  for (uint32_t local_rank = local_size - 1; local_rank > 0; --local_rank) {
    hosts[local_rank - 1] += hosts[local_rank];
  }
  return hosts;
}

}  // namespace

Result<std::vector<v1::Placement>> PlacementsOfHost(const v1::Layout& layout, uint32_t host_index) {
  const auto& sizes = layout.host_sizes();
  if (host_index >= static_cast<uint32_t>(sizes.size())) {
    return Status::Invalid("host " + std::to_string(host_index) + " of a layout of " +
                           std::to_string(sizes.size()) + " hosts");
  }
  uint32_t base = 0;
  uint64_t sum = 0;
  for (int host = 0; host < sizes.size(); ++host) {
    if (sizes[host] == 0) {
      return Status::Invalid("host " + std::to_string(host) + " of the layout is empty");
    }
    sum += sizes[host];
    if (sum > kWorldSizeMax) {
      return Status::Invalid("a layout of more than " + std::to_string(kWorldSizeMax) + " workers");
    }
    base += static_cast<uint32_t>(host) < host_index ? sizes[host] : 0;
  }
  const auto size = static_cast<uint32_t>(sum);
  std::vector<v1::Placement> placements;
  const uint32_t local_size = sizes[static_cast<int>(host_index)];
  const std::vector<uint32_t> hosts = HostsWithLocalRank(layout, sizes.size(), local_size);
  const std::vector<uint32_t> hosts_before =
      HostsWithLocalRank(layout, static_cast<int>(host_index), local_size);
  for (uint32_t local_rank = 0; local_rank < local_size; ++local_rank) {
    v1::Placement placement;
    placement.set_rank(base + local_rank);
    placement.set_size(size);
    placement.set_local_rank(local_rank);
    placement.set_local_size(local_size);
    placement.set_cross_rank(hosts_before[local_rank]);
    placement.set_cross_size(hosts[local_rank]);
    placements.push_back(placement);
  }
  return placements;
}

}  // namespace muster::launcher
