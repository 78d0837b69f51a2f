#include "launcher/agent/world_placement.h"

#include <string>

namespace muster::launcher {

Result<std::vector<v1::Placement>> PlacementsOfHost(const v1::Layout& layout, uint32_t host_index) {
  const auto& sizes = layout.host_sizes();
  if (host_index >= static_cast<uint32_t>(sizes.size())) {
    return Status::Invalid("host " + std::to_string(host_index) + " of a layout of " +
                           std::to_string(sizes.size()) + " hosts");
  }
  uint32_t base = 0;
  uint32_t size = 0;
  for (int host = 0; host < sizes.size(); ++host) {
    if (sizes[host] == 0) {
      return Status::Invalid("host " + std::to_string(host) + " of the layout is empty");
    }
    base += static_cast<uint32_t>(host) < host_index ? sizes[host] : 0;
    size += sizes[host];
  }
  std::vector<v1::Placement> placements;
  const uint32_t local_size = sizes[static_cast<int>(host_index)];
  for (uint32_t local_rank = 0; local_rank < local_size; ++local_rank) {
    v1::Placement placement;
    placement.set_rank(base + local_rank);
    placement.set_size(size);
    placement.set_local_rank(local_rank);
    placement.set_local_size(local_size);
    uint32_t cross_size = 0;
    for (int host = 0; host < sizes.size(); ++host) {
      if (sizes[host] > local_rank) {
        if (static_cast<uint32_t>(host) == host_index) {
          placement.set_cross_rank(cross_size);
        }
        ++cross_size;
      }
    }
    placement.set_cross_size(cross_size);
    placements.push_back(placement);
  }
  return placements;
}

}  // namespace muster::launcher
