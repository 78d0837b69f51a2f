// In place of common/: the loop, clocks, random bytes and the addresses of a simulated machine.

#include <algorithm>

#include "common/check.h"
#include "common/clock.h"
#include "common/loop.h"
#include "common/network.h"
#include "common/secret.h"
#include "test/sim/job/universe.h"

namespace muster {

using sim::Universe;

Instant SteadyClock::Now() const {
  return Universe::Get().ClockOfCurrent();
}

Instant BootClock::Now() const {
  return Universe::Get().ClockOfCurrent();
}

// ---------------------------------------------------------------- Loop

Loop::Loop() {
  Universe::Get().Register(*this);
}

Loop::~Loop() {
  Universe::Get().Unregister(*this);
}

void Loop::Run() {
  Universe::Get().Run([this] { return stop_; });
}

void Loop::Wake() {
  Universe::Get().Wake(*this, Duration::zero(), [this] {
    RunTimers();
    RunPosted();
  });
}

Loop::TimerId Loop::After(Duration delay, Callback callback) {
  const uint64_t id = next_timer_++;
  const Instant due = Now() + delay;
  timers_.emplace(std::pair(due, id), std::move(callback));
  timer_due_.emplace(id, due);
  Universe::Get().WakeAfter(*this, std::max(delay, Duration::zero()), [this] { RunTimers(); });
  return {id};
}

// Nothing here has descriptors.
void Loop::Watch(int, uint32_t, FdCallback) {}
void Loop::Modify(int, uint32_t) {}
void Loop::Unwatch(int) {}

// ---------------------------------------------------------------- secrets, addresses

std::string RandomHex(size_t bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < 2 * bytes; ++i) {
    text += kDigits[Universe::Get().Below(16)];
  }
  return text;
}

bool EqualInConstantTime(std::string_view a, std::string_view b) {
  return a == b;
}

Digest HmacSha256(std::string_view, std::string_view) {
  return {};  // Nothing here is signed.
}

std::vector<InterfaceAddress> LocalAddresses() {
  return {{"lo", "127.0.0.1", 2, true}, {"eth0", "10.0.0.1", 2, false}};
}

}  // namespace muster
