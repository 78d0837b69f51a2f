#include "common/clock.h"

#include <time.h>

namespace muster {

Instant SteadyClock::Now() const {
  return std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now());
}

Instant BootClock::Now() const {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return Instant(std::chrono::seconds(now.tv_sec) +
                 std::chrono::duration_cast<Duration>(std::chrono::nanoseconds(now.tv_nsec)));
}

}  // namespace muster
