#pragma once

// Looks at /proc: who descends from whom, who carries a job's marks in its environment; and kills
// what is left of a host's part of a job. Without state; any thread, except that Sweep with
// `descendants` reaps every child of the process.
//
// What cannot be seen (another user's process, a zombie) counts as not there.

#include <sys/types.h>

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"

namespace muster::launcher {

struct ProcessEntry {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
};

/// Keeps a descriptor in hand for this thread's looks, for when there are no more. Call it where a
/// thread begins that will look; the first look does it at the latest.
void KeepSpareDescriptor();

/// All living processes; zombies are left out.
std::vector<ProcessEntry> ListProcesses();

/// Those of `all` that descend from `ancestor`, itself excluded. Under a subreaper orphans stay
/// its descendants, whatever session or group they made.
std::vector<ProcessEntry> DescendantsOf(pid_t ancestor, const std::vector<ProcessEntry>& all);

/// The state letters of these threads of a process, as far as they can be seen. Some 10 us each.
std::string ThreadStates(pid_t pid, std::initializer_list<pid_t> threads);

/// Of all its threads.
std::string ThreadStates(pid_t pid);

/// The environment with which the process was executed: "\0NAME=value\0NAME=value\0"; empty if it
/// cannot be seen.
std::string EnvironmentOf(pid_t pid);
bool Holds(std::string_view environment, std::span<const std::string> entries);

/// True if the environment with which the process was executed holds every one of `entries`
/// ("NAME=value").
bool EnvironmentHolds(pid_t pid, std::span<const std::string> entries);

struct SweepTarget {
  std::string job;
  std::string host;
  bool descendants = false;  // Also everything that descends from the caller, and reap it.
  // Not empty: of what carries the marks only the workers of the agent whose sockets lie there.
  // Across a network an old agent of a host may still be about to end when a new one has started,
  // and must not take the new one's workers with it.
  std::string directory;
};

/// SIGKILLs whatever carries the job's and host's marks, again and again until nothing is left.
/// False if something was left after `limit`. The driver calls it too, for a local host whose
/// agent and reaper were both killed.
bool Sweep(const SweepTarget& target, Duration limit);

}  // namespace muster::launcher
