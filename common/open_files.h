#pragma once

// The limit of open files of a daemon that holds descriptors for many others. Thread-safe, but
// meant for the start of a process.

#include "common/status.h"

namespace muster {

/// Raises the soft limit to the hard one. Children (common/process.h) get the soft limit as it was:
/// programs that close all descriptors up to it, or that use select(), count on a low one.
Status RaiseOpenFiles();

}  // namespace muster
