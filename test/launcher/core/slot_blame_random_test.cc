// Blame by slot against a reference that keeps every failure for ever and counts anew each time.

#include <catch2/catch.hpp>
#include <chrono>
#include <map>
#include <optional>
#include <vector>

#include "common/random.h"
#include "launcher/core/slot_blame.h"

namespace muster::launcher {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

class Reference {
 public:
  explicit Reference(std::optional<CooldownRange> cooldown) : cooldown_(cooldown) {}

  void Fail(Instant now) { failures_.push_back(now); }

  std::optional<Instant> UsableFrom() const {
    if (failures_.empty()) {
      return Instant::min();
    }
    if (!cooldown_ && FiveWithinTenMinutes()) {
      return std::nullopt;
    }
    return failures_.back() + Delays()[Level() - 1];
  }

 private:
  // 1, 2, 4, ... up to and with the first that reaches the top.
  std::vector<Duration> Delays() const {
    const Duration low = cooldown_ ? cooldown_->low : Duration(seconds(1));
    const Duration high = cooldown_ ? cooldown_->high : Duration(seconds(60));
    std::vector<Duration> delays;
    for (Duration delay = low; delay < high; delay *= 2) {
      delays.push_back(delay);
    }
    delays.push_back(high);
    return delays;
  }

  size_t Level() const {
    const size_t top = Delays().size();
    size_t level = 0;
    for (size_t i = 0; i < failures_.size(); ++i) {
      const auto good = i == 0 ? 0 : (failures_[i] - failures_[i - 1]) / minutes(10);
      level -= std::min<size_t>(level, static_cast<size_t>(good));
      level = std::min(level + 1, top);
    }
    return level;
  }

  bool FiveWithinTenMinutes() const {
    for (size_t i = 4; i < failures_.size(); ++i) {
      if (failures_[i] - failures_[i - 4] < minutes(10)) {
        return true;
      }
    }
    return false;
  }

  std::optional<CooldownRange> cooldown_;
  std::vector<Instant> failures_;
};

void Compare(std::optional<CooldownRange> cooldown, uint64_t seed, uint64_t pause_seconds) {
  Random random(seed);
  SlotBlame blame(cooldown, false);
  std::map<SlotId, Reference> references;
  Instant now{std::chrono::hours(1)};
  for (int i = 0; i < 60; ++i) {
    now += seconds(random.Below(pause_seconds));
    const SlotId slot{HostId{"a"}, static_cast<uint32_t>(random.Below(3))};
    blame.WorkerFailed(slot, now);
    references.try_emplace(slot, cooldown).first->second.Fail(now);
    for (const auto& [known, reference] : references) {
      INFO("seed " << seed << ", failure " << i << ", slot " << known);
      REQUIRE(blame.UsableFrom(known) == reference.UsableFrom());
      REQUIRE(blame.SetAsideForGood(known) == !reference.UsableFrom().has_value());
    }
  }
}

TEST_CASE("blame by slot is that of the reference") {
  for (uint64_t seed = 1; seed < 200; ++seed) {
    Compare(std::nullopt, seed, GENERATE(5, 200, 400, 2000));
  }
}

TEST_CASE("blame with a cool-down range is that of the reference") {
  for (uint64_t seed = 1; seed < 200; ++seed) {
    Compare(CooldownRange{seconds(3), seconds(12)}, seed, 300);
    Compare(CooldownRange{seconds(7), seconds(100)}, seed, 1500);
    Compare(CooldownRange{seconds(5), seconds(5)}, seed, 50);
  }
}

}  // namespace
}  // namespace muster::launcher
