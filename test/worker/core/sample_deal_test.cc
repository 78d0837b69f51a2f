#include "worker/core/sample_deal.h"

#include <catch2/catch.hpp>
#include <limits>
#include <vector>

namespace muster::worker {
namespace {

using Places = std::vector<uint64_t>;

Places PlacesOf(const SampleDeal& deal, uint32_t rank) {
  Places places;
  for (uint64_t round = 0; round < deal.rounds(); ++round) {
    places.push_back(deal.PlaceOf(rank, round));
  }
  return places;
}

TEST_CASE("sample deal gives every rank one place of each round") {
  const SampleDeal deal(6, 0, 3);
  CHECK(PlacesOf(deal, 0) == Places{0, 3});
  CHECK(PlacesOf(deal, 1) == Places{1, 4});
  CHECK(PlacesOf(deal, 2) == Places{2, 5});
}

TEST_CASE("sample deal goes on where the epoch stands, at any size of the world") {
  const SampleDeal deal(10, 4, 2);
  CHECK(PlacesOf(deal, 0) == Places{4, 6, 8});
  CHECK(PlacesOf(deal, 1) == Places{5, 7, 9});
  CHECK(PlacesOf(SampleDeal(10, 4, 1), 0) == Places{4, 5, 6, 7, 8, 9});
}

TEST_CASE("sample deal pads the last round from the head of the epoch") {
  const SampleDeal deal(10, 5, 3);
  CHECK(deal.rounds() == 2);
  CHECK(PlacesOf(deal, 0) == Places{5, 8});
  CHECK(PlacesOf(deal, 1) == Places{6, 9});
  CHECK(PlacesOf(deal, 2) == Places{7, 0});
}

TEST_CASE("sample deal has a round where fewer places are left than there are ranks") {
  // Horovod's sampler fails where less than half of the ranks get one: 1 of 4, 3 of 8.
  const SampleDeal one_left(100, 99, 4);
  CHECK(one_left.rounds() == 1);
  CHECK(one_left.PlaceOf(0, 0) == 99);
  CHECK(one_left.PlaceOf(1, 0) == 0);
  CHECK(one_left.PlaceOf(2, 0) == 1);
  CHECK(one_left.PlaceOf(3, 0) == 2);
  const SampleDeal three_left(100, 97, 8);
  CHECK(three_left.rounds() == 1);
  CHECK(three_left.PlaceOf(2, 0) == 99);
  CHECK(three_left.PlaceOf(7, 0) == 4);
}

TEST_CASE("sample deal repeats a data set that is smaller than the padding") {
  const SampleDeal deal(2, 0, 7);
  Places round;
  for (uint32_t rank = 0; rank < 7; ++rank) {
    round.push_back(deal.PlaceOf(rank, 0));
  }
  CHECK(deal.rounds() == 1);
  CHECK(round == Places{0, 1, 0, 1, 0, 1, 0});
}

TEST_CASE("sample deal has no rounds at the end of the epoch, nor without samples") {
  CHECK(SampleDeal(10, 10, 3).rounds() == 0);
  CHECK(SampleDeal(10, 10, 3).PositionAfter(5) == 10);
  CHECK(SampleDeal(0, 0, 3).rounds() == 0);
  CHECK(SampleDeal(0, 0, 3).PositionAfter(1) == 0);
}

TEST_CASE("sample deal counts the places of all ranks, padding excepted") {
  const SampleDeal deal(10, 1, 4);
  CHECK(deal.PositionAfter(0) == 1);
  CHECK(deal.PositionAfter(1) == 5);
  CHECK(deal.PositionAfter(2) == 9);
  CHECK(deal.PositionAfter(3) == 10);  // One of four, and three of padding.
}

TEST_CASE("sample deal counts a batch that is cut short as what was left") {
  CHECK(SampleDeal(1797, 1760, 4).PositionAfter(32) == 1797);
  // Four times as many are 0, in 64 bits.
  CHECK(SampleDeal(10, 1, 4).PositionAfter(uint64_t{1} << 62) == 10);
}

TEST_CASE("sample deal does not overflow at the largest sizes") {
  constexpr uint64_t kCount = uint64_t{1} << 63;
  constexpr uint32_t kSize = std::numeric_limits<uint32_t>::max();
  const SampleDeal fresh(kCount, 0, kSize);
  CHECK(fresh.rounds() == 0x80000001ULL);  // 2^63 / (2^32 - 1), rounded up.
  CHECK(fresh.PlaceOf(0, 1) == kSize);
  CHECK(fresh.PositionAfter(fresh.rounds() - 1) == 0x80000000ULL * kSize);
  CHECK(fresh.PositionAfter(fresh.rounds()) == kCount);
  const SampleDeal last(kCount, kCount - 1, kSize);
  CHECK(last.rounds() == 1);
  CHECK(last.PlaceOf(0, 0) == kCount - 1);
  CHECK(last.PlaceOf(kSize - 1, 0) == kSize - 2);
}

TEST_CASE("sample deal uses each place of the rest once, and less padding than ranks") {
  for (uint64_t count = 1; count <= 40; ++count) {
    for (uint64_t position = 0; position <= count; ++position) {
      for (uint32_t size = 1; size <= 9; ++size) {
        const SampleDeal deal(count, position, size);
        // In the order in which they are dealt.
        uint64_t dealt = 0;
        for (uint64_t round = 0; round < deal.rounds(); ++round) {
          for (uint32_t rank = 0; rank < size; ++rank) {
            const uint64_t expected = (position + dealt) % count;
            INFO("count " << count << ", position " << position << ", size " << size);
            REQUIRE(deal.PlaceOf(rank, round) == expected);
            ++dealt;
          }
        }
        REQUIRE(dealt >= count - position);
        REQUIRE(dealt < count - position + size);
        REQUIRE(deal.PositionAfter(deal.rounds()) == count);
      }
    }
  }
}

}  // namespace
}  // namespace muster::worker
