#include "worker/core/sample_order.h"

#include <algorithm>
#include <cmath>

#include "common/check.h"

namespace muster::worker {
namespace {

// Four would do for large data sets. In small ones a round moves little: of five samples some
// orders come visibly more often than others up to the tenth round, of six up to the fourteenth.
constexpr uint64_t kRounds = 16;

// Odd numbers without a pattern, which spread what they multiply over 64 bits.
constexpr uint64_t kRoundStep = 0x9E3779B97F4A7C15ULL;
constexpr uint64_t kHalfStep = 0xD1342543DE82EF95ULL;

// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): each bit of the input changes half of
// those of the result.
uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

// The smallest root with root * root >= count. The square root of a rounded number may be one too
// small.
uint64_t RootAbove(uint64_t count) {
  const auto suffices = [count](uint64_t root) { return (count - 1) / root < root; };
  uint64_t root = std::max<uint64_t>(1, static_cast<uint64_t>(std::sqrt(count)));
  while (!suffices(root)) {
    ++root;
  }
  return root;
}

// Both are at most 2^32, so nothing overflows.
uint64_t Shift(uint64_t half, uint64_t hash, uint64_t bound) {
  const uint64_t shifted = half + (((hash >> 32) * bound) >> 32);
  return shifted < bound ? shifted : shifted - bound;
}

}  // namespace

SampleOrder::SampleOrder(uint64_t count, uint64_t seed, uint64_t epoch)
    : count_(count),
      shuffled_(count > 1),
      // Not a sum of both: seed 1 in epoch 2 is another order than seed 2 in epoch 1.
      key_(Mix(Mix(seed + kRoundStep) + epoch)) {
  if (shuffled_) {
    rows_ = RootAbove(count);
    columns_ = (count - 1) / rows_ + 1;
  }
}

// A Feistel network whose halves are a row and a column, as in Black and Rogaway, "Ciphers with
// arbitrary finite domains" (2002): each round shifts one half by a function of the other, which
// can be undone, so no two cells meet.
uint64_t SampleOrder::Permute(uint64_t cell) const {
  uint64_t row = cell % rows_;
  uint64_t column = cell / rows_;
  uint64_t round_key = key_;
  for (uint64_t round = 0; round < kRounds; round += 2) {
    row = Shift(row, Mix(round_key + column * kHalfStep), rows_);
    round_key += kRoundStep;
    column = Shift(column, Mix(round_key + row * kHalfStep), columns_);
    round_key += kRoundStep;
  }
  return column * rows_ + row;
}

uint64_t SampleOrder::At(uint64_t place) const {
  MUSTER_CHECK(place < count_, "a place behind the end of the epoch");
  if (!shuffled_) {
    return place;
  }
  // Fewer than rows_ cells are no samples. Whoever lands there walks on along the cycle, which
  // leads back to a sample: to `place` itself, if to no other.
  uint64_t cell = place;
  do {
    cell = Permute(cell);
  } while (cell >= count_);
  return cell;
}

}  // namespace muster::worker
