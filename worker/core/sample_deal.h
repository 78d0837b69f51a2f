#pragma once

// SampleDeal: how what is left of an epoch is dealt to the ranks of a world, like cards: in each
// round one place of the order to every rank. So what is used after any number of rounds is the
// head of the order, whatever the size of the world was, and one number says how far the epoch is.
//
// The last round may be short of places; the ranks without one get places from the head of the
// order, as padding, so that all ranks have equally many.
//
// It knows places, not samples: SampleOrder says which sample stands where.
// Pure; immutable, so any thread may read it.

#include <cstdint>

namespace muster::worker {

class SampleDeal {
 public:
  /// Of an epoch of `count` places, at most 2^63, `position` are used; the rest goes to `size`
  /// ranks.
  SampleDeal(uint64_t count, uint64_t position, uint32_t size);

  /// Places of each rank, padding included.
  uint64_t rounds() const;
  /// What the rank gets in this round; round < rounds().
  uint64_t PlaceOf(uint32_t rank, uint64_t round) const;
  /// The position after so many rounds; after more than there are, the end of the epoch. Padding
  /// does not count.
  uint64_t PositionAfter(uint64_t rounds) const;

 private:
  uint64_t left() const { return count_ - position_; }

  uint64_t count_;
  uint64_t position_;
  uint64_t size_;
};

}  // namespace muster::worker
