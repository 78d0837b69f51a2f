#pragma once

// Incidents in sentences, for somebody who was woken up: what happened, how we know, what was
// decided, how long it took, what was lost, what to do. Pure: the clock's zone is an argument.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "launcher/incident/incident.h"

namespace muster::launcher {

/// The clock time of milliseconds since 1970, as it is to be shown.
using ClockText = std::function<std::string(int64_t)>;

/// What happened, in one line without a full stop. The driver's log uses it too.
std::string Headline(const Incident& incident);

/// A paragraph with a newline at its end.
std::string TellIncident(const Incident& incident, const JobRecord& job, const ClockText& clock);

/// "3.1 ms", "12.3 s", "2 min 5 s", "3 h 20 min".
std::string TimeText(Duration time);

}  // namespace muster::launcher
