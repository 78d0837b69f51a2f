#include "launcher/agent/world_placement.h"

#include <catch2/catch.hpp>

namespace muster::launcher {
namespace {

v1::Layout LayoutOf(std::initializer_list<uint32_t> sizes) {
  v1::Layout layout;
  for (const uint32_t size : sizes) {
    layout.add_host_sizes(size);
  }
  return layout;
}

}  // namespace

TEST_CASE("placements are dense per host and crossed over the hosts that are large enough") {
  const std::vector<v1::Placement> placements = PlacementsOfHost(LayoutOf({1, 3, 2}), 1).value();
  REQUIRE(placements.size() == 3);
  for (uint32_t i = 0; i < 3; ++i) {
    CHECK(placements[i].rank() == 1 + i);
    CHECK(placements[i].size() == 6);
    CHECK(placements[i].local_rank() == i);
    CHECK(placements[i].local_size() == 3);
  }
  CHECK(placements[0].cross_rank() == 1);
  CHECK(placements[0].cross_size() == 3);
  CHECK(placements[1].cross_rank() == 0);
  CHECK(placements[1].cross_size() == 2);
  CHECK(placements[2].cross_rank() == 0);
  CHECK(placements[2].cross_size() == 1);
}

TEST_CASE("placements refuse a layout that cannot be") {
  CHECK(PlacementsOfHost(LayoutOf({2}), 1).status().code() == StatusCode::kInvalid);
  CHECK(PlacementsOfHost(LayoutOf({2, 0}), 0).status().code() == StatusCode::kInvalid);
  CHECK(PlacementsOfHost(LayoutOf({}), 0).status().code() == StatusCode::kInvalid);
  CHECK(PlacementsOfHost(LayoutOf({kWorldSizeMax, 1}), 1).status().code() == StatusCode::kInvalid);
  CHECK(PlacementsOfHost(LayoutOf({1, UINT32_MAX}), 0).status().code() == StatusCode::kInvalid);
}

}  // namespace muster::launcher
