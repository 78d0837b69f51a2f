#include "worker/core/sample_deal.h"

#include <algorithm>

#include "common/check.h"

namespace muster::worker {

SampleDeal::SampleDeal(uint64_t count, uint64_t position, uint32_t size)
    : count_(count), position_(position), size_(size) {
  // With this bound no sum or product below overflows.
  MUSTER_CHECK(count <= uint64_t{1} << 63, "an epoch has at most 2^63 samples");
  MUSTER_CHECK(position <= count, "more samples are used than the epoch has");
  MUSTER_CHECK(size > 0, "a world has at least one member");
}

uint64_t SampleDeal::rounds() const {
  return left() / size_ + (left() % size_ == 0 ? 0 : 1);
}

uint64_t SampleDeal::PlaceOf(uint32_t rank, uint64_t round) const {
  MUSTER_CHECK(rank < size_, "a rank outside the world");
  MUSTER_CHECK(round < rounds(), "a round after the last");
  // A world may be larger than the whole data set; then the head comes again and again.
  return (position_ + round * size_ + rank) % count_;
}

uint64_t SampleDeal::PositionAfter(uint64_t rounds) const {
  return std::min(count_, position_ + std::min(rounds, this->rounds()) * size_);
}

}  // namespace muster::worker
