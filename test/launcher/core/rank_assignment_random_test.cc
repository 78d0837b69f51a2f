// Ranks against a slow and obvious reference, and by the properties that users rely on.

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/random.h"
#include "launcher/core/rank_assignment.h"

namespace muster::launcher {
namespace {

// Some workers on up to six hosts, each with its own slot and incarnation, of several generations.
std::vector<Candidate> AnyCandidates(Random& random) {
  std::set<SlotId> taken;
  std::vector<Candidate> candidates;
  const uint64_t count = random.Below(20);
  for (uint64_t worker = 1; worker <= count; ++worker) {
    const SlotId slot{HostId{std::string(1, static_cast<char>('a' + random.Below(6)))},
                      static_cast<uint32_t>(random.Below(8))};
    if (taken.insert(slot).second) {
      candidates.push_back({Incarnation{worker}, slot, Generation{1 + random.Below(4)}});
    }
  }
  return candidates;
}

bool Older(const Candidate& a, const Candidate& b) {
  return a.since != b.since ? a.since < b.since : a.worker < b.worker;
}

// Takes the oldest worker that is left, and then the others of its host, oldest first; again and
// again until nobody is left.
std::vector<Candidate> Reference(std::vector<Candidate> left) {
  std::vector<Candidate> ordered;
  std::sort(left.begin(), left.end(), Older);
  while (!left.empty()) {
    const HostId host = left.front().slot.host;
    for (const Candidate& candidate : left) {
      if (candidate.slot.host == host) {
        ordered.push_back(candidate);
      }
    }
    std::erase_if(left, [&](const Candidate& candidate) { return candidate.slot.host == host; });
  }
  return ordered;
}

std::vector<SlotId> SlotsOf(const std::vector<Candidate>& candidates) {
  std::vector<SlotId> slots;
  for (const Candidate& candidate : candidates) {
    slots.push_back(candidate.slot);
  }
  return slots;
}

std::vector<uint64_t> Ids(const std::vector<Candidate>& candidates) {
  std::vector<uint64_t> ids;
  for (const Candidate& candidate : candidates) {
    ids.push_back(candidate.worker.value);
  }
  return ids;
}

TEST_CASE("the order of ranks is that of the reference") {
  Random random(1);
  for (int round = 0; round < 2000; ++round) {
    const auto candidates = AnyCandidates(random);
    INFO("round " << round);
    REQUIRE(Ids(InRankOrder(candidates)) == Ids(Reference(candidates)));
  }
}

TEST_CASE("places agree with a count by hand") {
  Random random(2);
  for (int round = 0; round < 1000; ++round) {
    INFO("round " << round);
    const auto slots = SlotsOf(InRankOrder(AnyCandidates(random)));
    const auto places = PlacementsOf(slots);
    REQUIRE(places.size() == slots.size());
    std::map<HostId, uint32_t> sizes;
    for (const SlotId& slot : slots) {
      ++sizes[slot.host];
    }
    for (size_t rank = 0; rank < slots.size(); ++rank) {
      const Placement& place = places[rank];
      uint32_t before_on_host = 0;
      uint32_t before_with_same_local = 0;
      for (size_t other = 0; other < rank; ++other) {
        before_on_host += slots[other].host == slots[rank].host ? 1 : 0;
        before_with_same_local += places[other].local_rank == place.local_rank ? 1 : 0;
      }
      uint32_t hosts_with = 0;
      for (const auto& [host, size] : sizes) {
        hosts_with += size > place.local_rank ? 1 : 0;
      }
      REQUIRE(place == Placement{static_cast<uint32_t>(rank),
                                 static_cast<uint32_t>(slots.size()),
                                 before_on_host,
                                 sizes.at(slots[rank].host),
                                 before_with_same_local,
                                 hosts_with});
    }
  }
}

TEST_CASE("a living rank 0 stays rank 0 whoever leaves and whoever comes") {
  Random random(3);
  for (int round = 0; round < 1000; ++round) {
    INFO("round " << round);
    std::vector<Candidate> world = InRankOrder(AnyCandidates(random));
    if (world.empty()) {
      continue;
    }
    const Candidate rank0 = world.front();
    std::vector<Candidate> next = {rank0};
    for (size_t i = 1; i < world.size(); ++i) {
      if (random.Below(2) == 0) {
        next.push_back(world[i]);
      }
    }
    // Newcomers are younger as members, though some are older as processes.
    for (uint32_t i = 0; i < 5; ++i) {
      next.push_back({Incarnation{random.Below(2) == 0 ? 1000 + i : 0},
                      SlotId{HostId{i % 2 == 0 ? "a" : "z"}, 100 + i},
                      Generation{9}});
    }
    REQUIRE(InRankOrder(next).front().worker == rank0.worker);
  }
}

TEST_CASE("survivors keep their order among themselves on their host") {
  Random random(4);
  for (int round = 0; round < 1000; ++round) {
    INFO("round " << round);
    const auto world = InRankOrder(AnyCandidates(random));
    std::vector<Candidate> survivors;
    for (const Candidate& candidate : world) {
      if (random.Below(3) != 0) {
        survivors.push_back(candidate);
      }
    }
    const auto next = InRankOrder(survivors);
    for (const Candidate& one : survivors) {
      for (const Candidate& two : survivors) {
        if (one.slot.host != two.slot.host || !Older(one, two)) {
          continue;
        }
        const auto at = [&](const Candidate& candidate) {
          return std::find_if(next.begin(), next.end(), [&](const Candidate& other) {
            return other.worker == candidate.worker;
          });
        };
        REQUIRE(at(one) < at(two));
      }
    }
  }
}

}  // namespace
}  // namespace muster::launcher
