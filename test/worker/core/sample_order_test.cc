#include "worker/core/sample_order.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

namespace muster::worker {
namespace {

constexpr uint64_t kSampleMax = std::numeric_limits<int64_t>::max();

std::vector<uint64_t> List(const SampleOrder& order) {
  std::vector<uint64_t> samples;
  for (uint64_t place = 0; place < order.count(); ++place) {
    samples.push_back(order.At(place));
  }
  return samples;
}

bool VisitsEachOnce(const SampleOrder& order) {
  std::vector<bool> seen(order.count());
  for (uint64_t place = 0; place < order.count(); ++place) {
    const uint64_t sample = order.At(place);
    if (sample >= order.count() || seen[sample]) {
      return false;
    }
    seen[sample] = true;
  }
  return true;
}

/// How far counts are from equal ones, in standard deviations of what chance gives (chi-square;
/// its mean is `freedom` and its variance twice that).
class Evenness {
 public:
  explicit Evenness(size_t cells) : counts_(cells) {}
  void Add(size_t cell) { ++counts_.at(cell); }

  double Deviation(double freedom) const {
    const double total = std::accumulate(counts_.begin(), counts_.end(), 0.0);
    const double expected = total / static_cast<double>(counts_.size());
    double chi_square = 0;
    for (const double count : counts_) {
      chi_square += (count - expected) * (count - expected) / expected;
    }
    return (chi_square - freedom) / std::sqrt(2 * freedom);
  }
  double Deviation() const { return Deviation(static_cast<double>(counts_.size()) - 1); }

 private:
  std::vector<double> counts_;
};

// Seeds are fixed, so a test below either always passes or never does: what chance alone gives is
// beyond 4 in one of 16,000 tests.
constexpr double kChance = 4;

TEST_CASE("sample order counts up when it is not shuffled") {
  CHECK(List(SampleOrder(4)) == std::vector<uint64_t>{0, 1, 2, 3});
  CHECK(SampleOrder(kSampleMax).At(kSampleMax - 1) == kSampleMax - 1);
}

TEST_CASE("sample order visits each sample once at every small size") {
  for (uint64_t count = 0; count <= 2048; ++count) {
    INFO(count << " samples");
    REQUIRE(VisitsEachOnce(SampleOrder(count, count * 7, count % 5)));
  }
  for (uint64_t seed = 0; seed < 200; ++seed) {
    for (uint64_t count = 1; count <= 17; ++count) {
      INFO(count << " samples, seed " << seed);
      REQUIRE(VisitsEachOnce(SampleOrder(count, seed, 0)));
    }
  }
}

TEST_CASE("sample order visits each of a million samples once, at and around squares") {
  for (const uint64_t count : {999'999, 1'000'000, 1'000'001, 1'048'576, 1'234'567}) {
    INFO(count << " samples");
    REQUIRE(VisitsEachOnce(SampleOrder(count, 1, 2)));
  }
}

// Not all places can be visited. If two of them had the same sample, these would show it only by
// luck; that they stay in range and are spread evenly, however, holds for any part.
TEST_CASE("sample order reaches all of data sets that no list could hold") {
  constexpr uint64_t kPlaces = 64'000;
  for (const uint64_t count : {(uint64_t{1} << 32) - 1,
                               uint64_t{1} << 32,
                               (uint64_t{1} << 32) + 1,
                               (uint64_t{1} << 40) + 12'345,
                               uint64_t{3'037'000'499} * 3'037'000'499,
                               uint64_t{3'037'000'499} * 3'037'000'499 + 1,
                               kSampleMax - 1,
                               kSampleMax,
                               kSampleMax + 1}) {
    INFO(count << " samples");
    const SampleOrder order(count, 5, 6);
    std::vector<uint64_t> samples;
    Evenness spread(64);
    for (uint64_t i = 0; i < kPlaces; ++i) {
      // Neighbours at the head, then at the end.
      samples.push_back(order.At(i < kPlaces / 2 ? i : count - kPlaces + i));
      REQUIRE(samples.back() < count);
      spread.Add(samples.back() / (count / 64 + 1));
    }
    CHECK(std::abs(spread.Deviation()) < kChance);
    std::sort(samples.begin(), samples.end());
    CHECK(std::adjacent_find(samples.begin(), samples.end()) == samples.end());
  }
}

// Workers of one job agree on the order without a word, and a job may be continued by another
// build. The values are those of a second implementation, in Python's integers without bounds.
TEST_CASE("sample order is the same in every build") {
  CHECK(List(SampleOrder(10, 0, 0)) == std::vector<uint64_t>{8, 2, 6, 7, 9, 5, 3, 4, 1, 0});
  CHECK(SampleOrder(kSampleMax, 42, 7).At(123'456'789) == 4'112'996'879'273'281'077);
}

TEST_CASE("sample order has all orders of a few samples, each as often as the others") {
  for (uint64_t count = 2; count <= 5; ++count) {
    std::map<std::vector<uint64_t>, size_t> numbers;
    std::vector<uint64_t> order(count);
    std::iota(order.begin(), order.end(), 0);
    do {
      numbers.emplace(order, numbers.size());
    } while (std::next_permutation(order.begin(), order.end()));

    Evenness evenness(numbers.size());
    for (uint64_t epoch = 0; epoch < numbers.size() * 200; ++epoch) {
      evenness.Add(numbers.at(List(SampleOrder(count, 3, epoch))));
    }
    INFO(count << " samples");
    CHECK(std::abs(evenness.Deviation()) < kChance);
  }
}

TEST_CASE("sample order takes each sample to each place equally often") {
  for (const uint64_t count : {7, 16, 25, 26, 60}) {
    Evenness evenness(count * count);
    for (uint64_t seed = 0; seed < count * 100; ++seed) {
      const SampleOrder order(count, seed, 1);
      for (uint64_t place = 0; place < count; ++place) {
        evenness.Add(place * count + order.At(place));
      }
    }
    INFO(count << " samples");
    // All rows and all columns have the same sum, which takes away so many degrees of freedom.
    CHECK(std::abs(evenness.Deviation(static_cast<double>((count - 1) * (count - 1)))) < kChance);
  }
}

TEST_CASE("sample order separates neighbours by any distance equally often") {
  constexpr uint64_t kCount = 1797;
  Evenness evenness(kCount - 1);
  for (uint64_t epoch = 0; epoch < 200; ++epoch) {
    const SampleOrder order(kCount, 11, epoch);
    for (uint64_t place = 0; place + 1 < kCount; ++place) {
      evenness.Add((order.At(place + 1) + kCount - order.At(place)) % kCount - 1);
    }
  }
  CHECK(std::abs(evenness.Deviation()) < kChance);
}

// Two orders that have nothing to do with each other agree in one place on average, whatever the
// number of samples (with variance 1).
double AgreementDeviation(uint64_t seed_step, uint64_t epoch_step) {
  constexpr uint64_t kCount = 101;
  constexpr uint64_t kPairs = 10'000;
  uint64_t agreements = 0;
  for (uint64_t i = 0; i < kPairs; ++i) {
    const SampleOrder one(kCount, i, 1'000 + i % 13);
    const SampleOrder other(kCount, i + seed_step, 1'000 + i % 13 + epoch_step);
    for (uint64_t place = 0; place < kCount; ++place) {
      agreements += one.At(place) == other.At(place) ? 1 : 0;
    }
  }
  return (static_cast<double>(agreements) - kPairs) / std::sqrt(kPairs);
}

TEST_CASE("sample order has nothing to do with those of other epochs and seeds") {
  CHECK(std::abs(AgreementDeviation(0, 1)) < kChance);
  CHECK(std::abs(AgreementDeviation(1, 0)) < kChance);
  CHECK(std::abs(AgreementDeviation(1, uint64_t(-1))) < kChance);  // The same sum.
  CHECK(std::abs(AgreementDeviation(uint64_t{1} << 63, 0)) < kChance);
  CHECK(AgreementDeviation(0, 0) > kChance);  // The measure sees what is the same.
}

}  // namespace
}  // namespace muster::worker
