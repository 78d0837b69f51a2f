#pragma once

// Incidents as JSON lines, one object each: docs/incidents.md has the fields. Reading takes bytes
// that anybody may have written, so whatever does not fit is an error, never a crash. No state.

#include <string>
#include <string_view>
#include <variant>

#include "common/status.h"
#include "launcher/incident/incident.h"

namespace muster::launcher {

/// Without a line end.
std::string ToJsonLine(const JobRecord& job);
/// `job` gives the clock time of what counts from its start.
std::string ToJsonLine(const Incident& incident, const JobRecord& job);

using Record = std::variant<JobRecord, Incident>;
/// kInvalid: no JSON, not an object, a field that is missing or of another type.
Result<Record> ParseJsonLine(std::string_view line);

/// "2026-12-01T13:15:22.042Z".
std::string UtcText(int64_t ms_since_1970);

}  // namespace muster::launcher
