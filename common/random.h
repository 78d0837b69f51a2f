#pragma once

// Chance as an argument: SplitMix64 (Steele, Lea, Flood 2014) gives the same sequence for
// the same seed on every machine. For secrets use common/secret.h.

#include <cstdint>

namespace muster {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }

  /// Uniform in [0, bound); bound > 0. The modulo bias is below 2^-32 for bounds below 2^32.
  uint64_t Below(uint64_t bound) { return Next() % bound; }

 private:
  uint64_t state_;
};

}  // namespace muster
