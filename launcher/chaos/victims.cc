#include "launcher/chaos/victims.h"

#include <algorithm>
#include <iterator>
#include <tuple>

namespace muster::launcher {
namespace {

bool IsTaken(const JobProcess& process, const VictimRules& rules) {
  return rules.hosts_taken.contains(process.host) || rules.taken.contains(process.pid);
}

bool HasRole(const std::string& kind, JobRole role) {
  if (kind == "agent") {
    return role == JobRole::kAgent;
  }
  if (kind == "reaper") {
    return role == JobRole::kReaper;
  }
  return role == JobRole::kWorker || (kind == "descriptors" && role == JobRole::kAgent);
}

bool EndsWith(const JobProcess& process, const JobProcess& victim) {
  return victim.role == JobRole::kWorker ? process.pid == victim.pid : process.host == victim.host;
}

uint32_t GrownWithout(const JobProcess& victim,
                      const std::vector<JobProcess>& processes,
                      const VictimRules& rules) {
  return static_cast<uint32_t>(
      std::count_if(processes.begin(), processes.end(), [&](const JobProcess& process) {
        return process.role == JobRole::kWorker && process.age >= kGrownAge &&
               !IsTaken(process, rules) && !EndsWith(process, victim);
      }));
}

}  // namespace

std::vector<JobProcess> EndingWith(const JobProcess& victim,
                                   const std::vector<JobProcess>& processes) {
  std::vector<JobProcess> ending;
  std::copy_if(processes.begin(),
               processes.end(),
               std::back_inserter(ending),
               [&](const JobProcess& process) { return EndsWith(process, victim); });
  return ending;
}

std::optional<JobProcess> PickVictim(const std::string& kind,
                                     const std::vector<JobProcess>& processes,
                                     const VictimRules& rules,
                                     uint64_t draw) {
  const bool hurts = kind != "pause" && kind != "descriptors";
  std::vector<const JobProcess*> candidates;
  for (const JobProcess& process : processes) {
    if (HasRole(kind, process.role) && !IsTaken(process, rules) &&
        (!hurts || GrownWithout(process, processes, rules) >= rules.kept)) {
      candidates.push_back(&process);
    }
  }
  if (candidates.empty()) {
    return std::nullopt;
  }
  // By slot, so that a seed meets the same places whatever pids the system hands out.
  std::sort(candidates.begin(), candidates.end(), [](const JobProcess* a, const JobProcess* b) {
    return std::tie(a->host, a->role, a->slot, a->pid) <
           std::tie(b->host, b->role, b->slot, b->pid);
  });
  return *candidates[draw % candidates.size()];
}

}  // namespace muster::launcher
