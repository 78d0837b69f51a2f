#pragma once

// Time as a value. Everything that decides takes an Instant as an argument; only the
// daemons' edges read a Clock.

#include <chrono>

namespace muster {

using Duration = std::chrono::microseconds;
using Instant = std::chrono::time_point<std::chrono::steady_clock, Duration>;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Instant Now() const = 0;
};

/// CLOCK_MONOTONIC.
class SteadyClock final : public Clock {
 public:
  Instant Now() const override;
};

/// CLOCK_BOOTTIME: goes on while the machine is suspended. For leases, which others count too.
class BootClock final : public Clock {
 public:
  Instant Now() const override;
};

}  // namespace muster
