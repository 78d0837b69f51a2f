#pragma once

// The vocabulary of Membership: options, events that happened, effects to perform. Words:
// docs/architecture.md; rules: docs/membership.md.

#include <string>
#include <vector>

#include "launcher/core/membership_effects.h"
#include "launcher/core/membership_events.h"
#include "launcher/core/membership_options.h"

namespace muster::launcher {

/// What one event led to. Effects are performed in this order.
struct Transition {
  std::vector<Effect> effects;
  std::string reason;  // In words; empty: nothing changed. Logged by the driver.
};

}  // namespace muster::launcher
