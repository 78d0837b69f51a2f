#pragma once

// The log of a daemon or of a worker's runtime: spdlog to stderr, one line per event, with
// fields. ERROR means that someone must act.

#include <spdlog/spdlog.h>

#include <string>

#include "common/status.h"

namespace muster {

/// `who` stands in each line ("driver", "agent 127.0.0.1", "worker 3"). Levels are horovodrun's:
/// TRACE DEBUG INFO WARNING ERROR FATAL, in any case of letters; empty means WARNING.
Status InitLog(const std::string& who, const std::string& level);

}  // namespace muster
