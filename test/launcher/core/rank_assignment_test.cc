#include "launcher/core/rank_assignment.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace muster::launcher {
namespace {

Candidate On(const std::string& host, uint32_t slot, uint64_t worker, uint64_t since = 1) {
  return {Incarnation{worker}, SlotId{HostId{host}, slot}, Generation{since}};
}

std::vector<uint64_t> Order(std::vector<Candidate> candidates) {
  std::vector<uint64_t> ids;
  for (const Candidate& candidate : InRankOrder(std::move(candidates))) {
    ids.push_back(candidate.worker.value);
  }
  return ids;
}

std::vector<SlotId> Slots(const std::vector<std::pair<std::string, uint32_t>>& sizes) {
  std::vector<SlotId> slots;
  for (const auto& [host, size] : sizes) {
    for (uint32_t index = 0; index < size; ++index) {
      slots.push_back({HostId{host}, index});
    }
  }
  return slots;
}

TEST_CASE("ranks follow the incarnations of a first world") {
  CHECK(Order({On("a", 0, 1), On("a", 1, 2), On("b", 0, 3)}) == std::vector<uint64_t>{1, 2, 3});
}

TEST_CASE("ranks do not depend on the order of the candidates") {
  CHECK(Order({On("b", 0, 3), On("a", 1, 2), On("a", 0, 1)}) == std::vector<uint64_t>{1, 2, 3});
}

TEST_CASE("ranks are contiguous per host, ordered by the oldest worker of each") {
  // The replacement 5 on host a stands with its host, before the older workers of b.
  CHECK(Order({On("a", 0, 5, 3), On("a", 1, 2), On("b", 0, 3), On("b", 1, 4)}) ==
        std::vector<uint64_t>{2, 5, 3, 4});
}

TEST_CASE("a host whose oldest worker is gone moves behind the others") {
  CHECK(Order({On("a", 0, 5, 2), On("b", 0, 3), On("c", 0, 4)}) == std::vector<uint64_t>{3, 4, 5});
}

TEST_CASE("the names of hosts do not matter for the order") {
  CHECK(Order({On("z", 0, 1), On("a", 0, 2)}) == std::vector<uint64_t>{1, 2});
}

TEST_CASE("a late starter stands behind the members though it is older as a process") {
  CHECK(Order({On("a", 0, 1, 2), On("b", 0, 2, 1)}) == std::vector<uint64_t>{2, 1});
}

TEST_CASE("a late starter on the host of rank 0 does not push rank 0 away") {
  CHECK(Order({On("a", 0, 1, 2), On("a", 1, 2, 1), On("b", 0, 3, 1)}) ==
        std::vector<uint64_t>{2, 1, 3});
}

TEST_CASE("a world of nobody has no order and no places") {
  CHECK(InRankOrder({}).empty());
  CHECK(PlacementsOf({}).empty());
}

TEST_CASE("a world of one has the only place") {
  const auto places = PlacementsOf(Slots({{"a", 1}}));
  REQUIRE(places.size() == 1);
  CHECK(places[0] == Placement{0, 1, 0, 1, 0, 1});
}

TEST_CASE("places on hosts of one and two slots are those of Horovod") {
  const auto places = PlacementsOf(Slots({{"a", 1}, {"b", 2}}));
  REQUIRE(places.size() == 3);
  CHECK(places[0] == Placement{0, 3, 0, 1, 0, 2});
  CHECK(places[1] == Placement{1, 3, 0, 2, 1, 2});
  CHECK(places[2] == Placement{2, 3, 1, 2, 0, 1});
}

TEST_CASE("places on hosts of one, three and two slots count hosts per local rank") {
  // User case 75.
  const auto places = PlacementsOf(Slots({{"a", 1}, {"b", 3}, {"c", 2}}));
  REQUIRE(places.size() == 6);
  CHECK(places[0] == Placement{0, 6, 0, 1, 0, 3});
  CHECK(places[1] == Placement{1, 6, 0, 3, 1, 3});
  CHECK(places[2] == Placement{2, 6, 1, 3, 0, 2});
  CHECK(places[3] == Placement{3, 6, 2, 3, 0, 1});
  CHECK(places[4] == Placement{4, 6, 0, 2, 2, 3});
  CHECK(places[5] == Placement{5, 6, 1, 2, 1, 2});
}

TEST_CASE("places after the middle host is gone are dense again") {
  const auto places = PlacementsOf(Slots({{"a", 1}, {"c", 2}}));
  REQUIRE(places.size() == 3);
  CHECK(places[1] == Placement{1, 3, 0, 2, 1, 2});
  CHECK(places[2] == Placement{2, 3, 1, 2, 0, 1});
}

TEST_CASE("local ranks are dense though the slots are not") {
  const std::vector<SlotId> slots = {{HostId{"a"}, 1}, {HostId{"a"}, 3}, {HostId{"b"}, 7}};
  const auto places = PlacementsOf(slots);
  CHECK(places[0].local_rank == 0);
  CHECK(places[1].local_rank == 1);
  CHECK(places[1].local_size == 2);
  CHECK(places[2].local_rank == 0);
  CHECK(places[2].cross_rank == 1);
}

TEST_CASE("places of 4096 workers add up") {
  std::vector<std::pair<std::string, uint32_t>> hosts;
  for (int host = 0; host < 64; ++host) {
    hosts.emplace_back("host" + std::to_string(host), 64);
  }
  const auto places = PlacementsOf(Slots(hosts));
  REQUIRE(places.size() == 4096);
  for (uint32_t rank = 0; rank < 4096; ++rank) {
    REQUIRE(places[rank] == Placement{rank, 4096, rank % 64, 64, rank / 64, 64});
  }
}

}  // namespace
}  // namespace muster::launcher
