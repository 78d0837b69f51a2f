#pragma once

// Finds a job's processes on this machine in /proc, and acts on them through pidfds, so that a pid
// that is somebody else's by now is never touched. Only processes of the caller's own user count,
// root's too: who may read everything may not disturb everybody. This process and its ancestors are
// left out: one that was started from a worker's shell has the worker's marks. Without state; any
// thread.

#include <sys/resource.h>

#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "common/unique_fd.h"
#include "launcher/chaos/victims.h"

namespace muster::launcher {

/// The id of the caller's job that runs on this machine and begins like this. Errors say which
/// there are, and whose a job is that is not the caller's.
Result<std::string> FindRunningJob(const std::string& beginning);

/// Workers that have taken their page, that is, are about to join or have joined (behind a shell:
/// the process below it), and the agents and reapers that started them. An agent without such a
/// worker cannot be told from that of another job, and is left out, as is one without its reaper.
/// `present` is set if anything at all carries the marks of a worker of the job.
std::vector<JobProcess> ScanJob(const std::string& job, bool& present);

/// A pidfd, or none if the process has ended (reaped or not) or is another one by now.
UniqueFd OpenVictim(const JobProcess& process);

/// pidfd_send_signal(2).
Status SendSignal(const UniqueFd& pidfd, int signal);
bool HasEnded(const UniqueFd& pidfd);

/// Lowers the soft limit of descriptors to the lowest free number, so that the process can open
/// nothing more. Returns the limit as it was, and what was set in `lowered`.
Result<rlimit> ExhaustDescriptors(const JobProcess& process,
                                  const UniqueFd& pidfd,
                                  rlimit& lowered);
/// Puts `before` back, unless the process has ended or has set another limit meanwhile.
void RestoreDescriptors(const JobProcess& process,
                        const UniqueFd& pidfd,
                        const rlimit& before,
                        const rlimit& lowered);

}  // namespace muster::launcher
