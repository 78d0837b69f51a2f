#include "launcher/core/rank_assignment.h"

#include <algorithm>
#include <map>
#include <utility>

namespace muster::launcher {
namespace {

using Age = std::pair<Generation, Incarnation>;

Age AgeOf(const Candidate& candidate) {
  return {candidate.since, candidate.worker};
}

// First and one past the last rank of each host, in rank order.
std::vector<std::pair<size_t, size_t>> HostRanges(const std::vector<SlotId>& slots) {
  std::vector<std::pair<size_t, size_t>> ranges;
  for (size_t rank = 0; rank < slots.size(); ++rank) {
    if (rank == 0 || slots[rank].host != slots[rank - 1].host) {
      ranges.emplace_back(rank, rank);
    }
    ranges.back().second = rank + 1;
  }
  return ranges;
}

}  // namespace

std::vector<Candidate> InRankOrder(std::vector<Candidate> candidates) {
  std::map<HostId, Age> oldest;
  for (const Candidate& candidate : candidates) {
    const auto [found, added] = oldest.try_emplace(candidate.slot.host, AgeOf(candidate));
    found->second = std::min(found->second, AgeOf(candidate));
  }
  struct Keyed {
    Age host;
    Age worker;
    size_t index;
    auto operator<=>(const Keyed&) const = default;
  };
  std::vector<Keyed> keys;
  keys.reserve(candidates.size());
  for (size_t i = 0; i < candidates.size(); ++i) {
    keys.push_back({oldest.at(candidates[i].slot.host), AgeOf(candidates[i]), i});
  }
  std::sort(keys.begin(), keys.end());
  std::vector<Candidate> ordered;
  ordered.reserve(candidates.size());
  for (const Keyed& key : keys) {
    ordered.push_back(std::move(candidates[key.index]));
  }
  return ordered;
}

std::vector<Placement> PlacementsOf(const std::vector<SlotId>& slots) {
  const auto ranges = HostRanges(slots);
  std::vector<uint32_t> hosts_with;  // By local_rank.
  std::vector<Placement> placements(slots.size());
  for (const auto& [begin, end] : ranges) {
    hosts_with.resize(std::max(hosts_with.size(), end - begin));
    for (size_t rank = begin; rank < end; ++rank) {
      Placement& place = placements[rank];
      place.rank = static_cast<uint32_t>(rank);
      place.size = static_cast<uint32_t>(slots.size());
      place.local_rank = static_cast<uint32_t>(rank - begin);
      place.local_size = static_cast<uint32_t>(end - begin);
      place.cross_rank = hosts_with[place.local_rank]++;
    }
  }
  for (Placement& place : placements) {
    place.cross_size = hosts_with[place.local_rank];
  }
  return placements;
}

}  // namespace muster::launcher
