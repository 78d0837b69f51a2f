#pragma once

// `muster why`: tells the record of a job.

#include <string>

#include "launcher/cli/why_command.h"
#include "launcher/incident/incident_text.h"
#include "launcher/incident/record_store.h"

namespace muster::launcher {

struct Told {
  std::string text;   // For standard output.
  std::string error;  // For standard error, without the prefix "muster: "; empty: none.
  int code = 0;
};

/// `record` as read from the file; `path` is for messages. Pure.
Told TellRecord(const std::string& record,
                const std::string& path,
                DriverState driver,
                bool json,
                const ClockText& clock);

/// Reads, tells and prints; returns the exit code: 0, or 1 if there is nothing to tell.
int RunWhy(const WhyCommand& command);

}  // namespace muster::launcher
