#pragma once

// Whom an event of chaos meets. Pure: who is there is an argument.

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/clock.h"

namespace muster::launcher {

enum class JobRole : unsigned char { kWorker, kAgent, kReaper };

/// A process of the job on this machine.
struct JobProcess {
  JobRole role = JobRole::kWorker;
  pid_t pid = 0;
  uint64_t start = 0;  // Clock ticks since the machine started; with the pid it names the process.
  std::string host;
  // Of a worker.
  std::string incarnation;
  std::string slot;
  Duration age{};
};

/// The victim, and those that end because of it: a host's workers and servers with one of its
/// servers. They still look whole for a while.
std::vector<JobProcess> EndingWith(const JobProcess& victim,
                                   const std::vector<JobProcess>& processes);

/// A worker younger than this may not have the state yet.
inline constexpr Duration kGrownAge = std::chrono::seconds(3);

struct VictimRules {
  std::set<std::string> hosts_taken;  // A hook does something to them.
  std::set<pid_t> taken;              // Under way, or hurt and not ended yet.
  uint32_t kept = 1;                  // So many grown workers stay whole.
};

/// For an event that hurts: "kill" and "stop" meet workers, "agent" and "reaper" a host; one that
/// only disturbs ("pause": a worker, "descriptors": a worker or an agent) needs nobody to be left.
/// Nothing: there is no victim that the rules allow.
std::optional<JobProcess> PickVictim(const std::string& kind,
                                     const std::vector<JobProcess>& processes,
                                     const VictimRules& rules,
                                     uint64_t draw);

}  // namespace muster::launcher
