#pragma once

// Time as a value. Everything that decides takes an Instant as an argument; only the
// daemons' edges read a Clock.

#include <time.h>

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
  Instant Now() const override {
    return std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now());
  }
};

/// CLOCK_BOOTTIME: goes on while the machine is suspended. For leases, which others count too.
class BootClock final : public Clock {
 public:
  Instant Now() const override {
    timespec now{};
    ::clock_gettime(CLOCK_BOOTTIME, &now);
    return Instant(std::chrono::seconds(now.tv_sec) +
                   std::chrono::duration_cast<Duration>(std::chrono::nanoseconds(now.tv_nsec)));
  }
};

}  // namespace muster
