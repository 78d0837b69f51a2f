#pragma once

// The records of jobs on disk: DIRECTORY/<job id>/incidents.jsonl. Names of hosts and commands are
// nobody else's business: folders have mode 0700, files 0600. A driver holds a lock on its file for
// as long as it lives, so that whether a job is over needs no guess. Blocks as long as the disk
// does. Thread-safe: no state.

#include <string>

#include "common/status.h"
#include "common/unique_fd.h"

namespace muster::launcher {

/// Records of so many jobs stay.
inline constexpr size_t kJobsKept = 100;

/// Makes folder and file, and takes the lock. Every write appends.
Result<UniqueFd> CreateRecord(const std::string& directory, const std::string& job);

/// Removes the oldest records of jobs that are over, until `kept` are left. Takes away nothing but
/// what CreateRecord makes. Problems are no matter: the next job tries again.
void RemoveOldRecords(const std::string& directory, size_t kept = kJobsKept);

/// The path of a record. `job`: empty for the job that was started last, an id, the beginning of
/// one, or the path of a file or of its folder.
Result<std::string> FindRecord(const std::string& directory, const std::string& job);

enum class DriverState : unsigned char { kRuns, kGone, kUnknown };
DriverState DriverOf(const std::string& record);

Result<std::string> ReadRecord(const std::string& record);

}  // namespace muster::launcher
