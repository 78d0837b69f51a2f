#pragma once

// SampleOrder: the order in which an epoch visits the samples of a data set. Shuffled, it is a
// permutation that is computed place by place, not a list: a data set of 2^40 samples costs as
// little as one of ten, and every rank computes the same.
//
// It knows no ranks: who gets which place says SampleDeal. Not for secrets.
// Pure; immutable, so any thread may read it.

#include <cstdint>

namespace muster::worker {

class SampleOrder {
 public:
  /// One by one from 0 to count - 1.
  explicit SampleOrder(uint64_t count) : count_(count) {}
  /// Shuffled. Other seeds and other epochs give orders that have nothing to do with each other.
  SampleOrder(uint64_t count, uint64_t seed, uint64_t epoch);

  uint64_t count() const { return count_; }
  /// The sample at this place; place < count.
  uint64_t At(uint64_t place) const;

 private:
  uint64_t Permute(uint64_t cell) const;

  uint64_t count_;
  bool shuffled_ = false;
  // When shuffled: the permutation is one of the cells of a table, rows_ * columns_ >= count_.
  uint64_t key_ = 0;
  uint64_t rows_ = 0;
  uint64_t columns_ = 0;
};

}  // namespace muster::worker
