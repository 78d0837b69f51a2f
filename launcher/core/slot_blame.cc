#include "launcher/core/slot_blame.h"

#include <algorithm>

namespace muster::launcher {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

constexpr Duration kBackoffLow = seconds(1);
constexpr Duration kBackoffHigh = seconds(60);
constexpr Duration kGoodTime = minutes(10);
constexpr size_t kFailuresForGood = 5;
constexpr Duration kUnreachableLow = seconds(1);
// A host that boots should be found within seconds of being up, so this climbs no further.
constexpr Duration kUnreachableHigh = seconds(5);

Duration Doubled(Duration low, Duration high, uint32_t level) {
  Duration delay = low;
  for (uint32_t i = 1; i < level && delay < high; ++i) {
    delay *= 2;
  }
  return std::min(delay, high);
}

}  // namespace

SlotBlame::SlotBlame(std::optional<CooldownRange> cooldown, bool blame_host)
    : cooldown_(cooldown), blame_host_(blame_host) {}

void SlotBlame::WorkerFailed(const SlotId& slot, Instant now) {
  if (!blame_host_) {
    Climb(slots_[slot], now);
    return;
  }
  ++slots_[slot].failures;
  HostFailed(slot.host, now);
}

void SlotBlame::HostFailed(const HostId& host, Instant now) {
  Ladder& ladder = hosts_[host].ladder;
  // Several workers of one host that fall together are one failure of the host.
  if (blame_host_ && ladder.usable_from > now) {
    return;
  }
  Climb(ladder, now);
  ladder.for_good |= blame_host_ && !cooldown_;
}

void SlotBlame::HostUnreachable(const HostId& host, Instant now) {
  HostRecord& record = hosts_[host];
  ++record.unreachable;
  record.retry_from = now + Doubled(kUnreachableLow, kUnreachableHigh, record.unreachable);
}

void SlotBlame::HostReached(const HostId& host) {
  const auto found = hosts_.find(host);
  if (found != hosts_.end()) {
    found->second.unreachable = 0;
    found->second.retry_from = Instant::min();
  }
}

std::optional<Instant> SlotBlame::UsableFrom(const SlotId& slot) const {
  Instant from = Instant::min();
  if (const auto found = slots_.find(slot); found != slots_.end()) {
    if (found->second.for_good) {
      return std::nullopt;
    }
    from = std::max(from, found->second.usable_from);
  }
  if (const auto found = hosts_.find(slot.host); found != hosts_.end()) {
    if (found->second.ladder.for_good) {
      return std::nullopt;
    }
    from = std::max({from, found->second.ladder.usable_from, found->second.retry_from});
  }
  return from;
}

bool SlotBlame::Usable(const SlotId& slot, Instant now) const {
  const auto from = UsableFrom(slot);
  return from.has_value() && *from <= now;
}

uint32_t SlotBlame::FailuresOf(const SlotId& slot) const {
  const auto found = slots_.find(slot);
  return found == slots_.end() ? 0 : found->second.failures;
}

bool SlotBlame::HasFailed(const SlotId& slot) const {
  if (FailuresOf(slot) > 0) {
    return true;
  }
  const auto found = hosts_.find(slot.host);
  return found != hosts_.end() &&
         (found->second.ladder.failures > 0 || found->second.unreachable > 0);
}

void SlotBlame::Climb(Ladder& ladder, Instant now) const {
  if (!ladder.recent.empty()) {
    const auto good_times = (now - ladder.recent.back()) / kGoodTime;
    ladder.level -= static_cast<uint32_t>(std::min<int64_t>(ladder.level, good_times));
  }
  ++ladder.level;
  // Above the first step that reaches the top a level would only delay the way down.
  while (ladder.level > 1 && DelayAt(ladder.level - 1) == DelayAt(ladder.level)) {
    --ladder.level;
  }
  ladder.usable_from = now + DelayAt(ladder.level);
  ++ladder.failures;
  std::erase_if(ladder.recent, [now](Instant at) { return now - at >= kGoodTime; });
  ladder.recent.push_back(now);
  ladder.for_good |= !cooldown_ && ladder.recent.size() >= kFailuresForGood;
}

Duration SlotBlame::DelayAt(uint32_t level) const {
  return cooldown_ ? Doubled(cooldown_->low, cooldown_->high, level)
                   : Doubled(kBackoffLow, kBackoffHigh, level);
}

}  // namespace muster::launcher
