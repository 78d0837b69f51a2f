#pragma once

// Translates between the wire (proto/muster/v1) and the core's vocabulary. No state, no I/O.

#include <map>
#include <optional>

#include "launcher/core/membership_types.h"
#include "muster/v1/agents.pb.h"

namespace muster::launcher {

/// The event in a report; nothing for reports that decide nothing (hello, summary) and for ones
/// that make no sense (bytes from outside).
std::optional<Event> ToEvent(const v1::AgentReport& report, const HostId& host);

/// The incarnation that a report speaks of, if it speaks of one.
std::optional<Incarnation> SubjectOf(const v1::AgentReport& report);

v1::Placement ToProto(const Placement& placement);

/// One FormWorld message per host that has members.
std::map<HostId, v1::FormWorld> SplitByHost(const FormWorld& world,
                                            const std::string& link_key,
                                            const std::string& reason);

}  // namespace muster::launcher
