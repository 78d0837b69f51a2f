#pragma once

// What the user can do about an incident, one sentence per kind of cause, each once. Empty where
// nothing is to be done. Pure.

#include <string>
#include <vector>

#include "launcher/incident/incident.h"

namespace muster::launcher {

std::vector<std::string> AdviceFor(const Incident& incident);

}  // namespace muster::launcher
