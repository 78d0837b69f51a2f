#include "launcher/chaos/job_processes.h"

#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string_view>

#include "common/process.h"
#include "common/worker_page.h"
#include "discovery/host_list.h"
#include "launcher/agent/process_scan.h"

namespace muster::launcher {
namespace {

// What a process has mapped that has taken its page; the name that the agent gives the memory.
constexpr std::string_view kPageMapping = "/memfd:muster-page";
constexpr size_t kShownMax = 64;
constexpr int64_t kMicroseconds = 1'000'000;

std::string ProcPath(pid_t pid, const char* name) {
  return "/proc/" + std::to_string(pid) + "/" + name;
}

std::string ReadProc(pid_t pid, const char* name) {
  std::ostringstream text;
  text << std::ifstream(ProcPath(pid, name), std::ios::binary).rdbuf();
  return text.str();
}

// -1 if the process is gone.
int64_t UserOf(pid_t pid) {
  struct stat info {};
  return ::stat(ProcPath(pid, "").c_str(), &info) == 0 ? static_cast<int64_t>(info.st_uid) : -1;
}

bool IsOwn(pid_t pid) {
  return UserOf(pid) == static_cast<int64_t>(::geteuid());
}

// Field 22 of /proc/PID/stat; 0 if the process is gone.
uint64_t StartOf(pid_t pid) {
  const std::string text = ReadProc(pid, "stat");
  const size_t end = text.rfind(')');
  unsigned long long start = 0;
  if (end == std::string::npos ||
      std::sscanf(text.c_str() + end + 1,
                  " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d "
                  "%llu",
                  &start) != 1) {
    return 0;
  }
  return start;
}

Duration AgeOf(uint64_t start) {
  static const int64_t ticks = ::sysconf(_SC_CLK_TCK);
  const Duration since_boot = BootClock().Now().time_since_epoch();
  return since_boot - Duration(static_cast<int64_t>(start) * kMicroseconds / ticks);
}

// `environment` as EnvironmentOf gives it.
std::string Variable(const std::string& environment, const char* name) {
  const std::string mark = '\0' + std::string(name) + "=";
  const size_t begin = environment.find(mark);
  if (begin == std::string::npos) {
    return "";
  }
  return environment.c_str() + begin + mark.size();
}

bool HasPage(pid_t pid) {
  return ReadProc(pid, "maps").find(kPageMapping) != std::string::npos;
}

// Where its program lies; empty if that cannot be seen.
std::filesystem::path ProgramOf(pid_t pid) {
  std::error_code error;
  return std::filesystem::read_symlink(ProcPath(pid, "exe"), error);
}

// "muster agent", by whatever path; the file may have been replaced since.
bool IsAgent(pid_t pid) {
  const std::string file = ProgramOf(pid).filename().string();
  const std::string line = ReadProc(pid, "cmdline");
  const size_t end = line.find('\0');
  return (file == "muster" || file == "muster (deleted)") && end != std::string::npos &&
         std::string_view(line.c_str() + end + 1) == "agent";
}

// The agent proper is a fork of its reaper: they have the same program, words and environment. An
// agent of another job may stand above as well, where one is started by a worker of the other.
bool IsReaperOf(pid_t reaper, pid_t agent) {
  return IsAgent(reaper) && ProgramOf(reaper) == ProgramOf(agent) &&
         ReadProc(reaper, "cmdline") == ReadProc(agent, "cmdline") &&
         EnvironmentOf(reaper) == EnvironmentOf(agent);
}

JobProcess MakeProcess(JobRole role, pid_t pid, const std::string& environment) {
  JobProcess process;
  process.role = role;
  process.pid = pid;
  process.start = StartOf(pid);
  process.host = Variable(environment, kEnvHost);
  process.age = AgeOf(process.start);
  if (role == JobRole::kWorker) {
    process.incarnation = Variable(environment, kEnvIncarnation);
    process.slot = Variable(environment, kEnvSlot);
  }
  return process;
}

using Parents = std::map<pid_t, pid_t>;

pid_t ParentOf(const Parents& parents, pid_t pid) {
  const auto found = parents.find(pid);
  return found == parents.end() ? 0 : found->second;
}

Parents ParentsOf(const std::vector<ProcessEntry>& all) {
  Parents parents;
  for (const ProcessEntry& entry : all) {
    parents[entry.pid] = entry.parent;
  }
  return parents;
}

// This process and what it was started by. Whoever starts it from the shell of a worker gives it
// the worker's marks, and it may disturb nobody whose end ends it.
std::set<pid_t> OwnLine(const Parents& parents) {
  std::set<pid_t> line;
  for (pid_t pid = ::getpid(); pid > 0 && line.insert(pid).second;) {
    pid = ParentOf(parents, pid);
  }
  return line;
}

// The agent proper has started the worker, or the outermost of the shells around it, which carry
// its marks; the reaper has started the agent. Anybody else above is none of the job's. A worker
// whose agent has just ended is the reaper's for a moment, and that has no reaper of its own.
void AddAgents(const std::map<pid_t, std::string>& marked,
               const std::vector<JobProcess>& workers,
               const Parents& parents,
               std::vector<JobProcess>& found) {
  std::set<pid_t> seen = OwnLine(parents);
  for (const JobProcess& worker : workers) {
    pid_t agent = ParentOf(parents, worker.pid);
    while (marked.contains(agent) &&
           Variable(marked.at(agent), kEnvIncarnation) == worker.incarnation) {
      agent = ParentOf(parents, agent);
    }
    const pid_t reaper = ParentOf(parents, agent);
    if (!seen.insert(agent).second || !seen.insert(reaper).second) {
      continue;
    }
    // Their starts first: what looks like an agent afterwards is what they are the starts of.
    JobProcess served_by = MakeProcess(JobRole::kAgent, agent, marked.at(worker.pid));
    JobProcess reaped_by = MakeProcess(JobRole::kReaper, reaper, marked.at(worker.pid));
    if (IsAgent(agent) && IsReaperOf(reaper, agent) && IsOwn(agent) && IsOwn(reaper)) {
      found.push_back(std::move(served_by));
      found.push_back(std::move(reaped_by));
    }
  }
}

std::string JoinWords(const std::set<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : ", ") + discovery::Printable(word, kShownMax);
  }
  return text;
}

std::optional<rlim_t> LowestFreeDescriptor(pid_t pid) {
  std::set<rlim_t> open;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(ProcPath(pid, "fd"), error), end;
       !error && entry != end;
       entry.increment(error)) {
    open.insert(std::stoul(entry->path().filename().string()));
  }
  if (error) {
    return std::nullopt;
  }
  rlim_t lowest = 0;
  while (open.contains(lowest)) {
    ++lowest;
  }
  return lowest;
}

}  // namespace

Result<std::string> FindRunningJob(const std::string& beginning) {
  std::set<std::string> own;
  std::set<std::string> matches;
  std::string foreign;  // Why it is none of the caller's.
  const std::vector<ProcessEntry> all = ListProcesses();
  const std::set<pid_t> self = OwnLine(ParentsOf(all));
  for (const ProcessEntry& entry : all) {
    const std::string environment = EnvironmentOf(entry.pid);
    const std::string job = Variable(environment, kEnvJob);
    if (job.empty() || Variable(environment, kEnvIncarnation).empty() || self.contains(entry.pid)) {
      continue;
    }
    if (!IsOwn(entry.pid)) {
      if (!beginning.empty() && job.starts_with(beginning)) {
        foreign = "job " + discovery::Printable(job, kShownMax) +
                  " belongs to the user with the number " + std::to_string(UserOf(entry.pid)) +
                  ", not to you";
      }
      continue;
    }
    own.insert(job);
    if (job.starts_with(beginning)) {
      matches.insert(job);
    }
  }
  if (matches.size() == 1) {
    return *matches.begin();
  }
  if (matches.empty() && !foreign.empty()) {
    return Status::Invalid(foreign);
  }
  if (own.empty()) {
    return Status::Invalid("no job of yours runs on this machine");
  }
  const std::string names = JoinWords(own);
  return Status::Invalid(matches.empty() ? "no job " + discovery::Printable(beginning, kShownMax) +
                                               " of yours runs here, but " + names
                                         : "several jobs of yours run here, say which: " + names);
}

std::vector<JobProcess> ScanJob(const std::string& job, bool& present) {
  const std::vector<std::string> mark{std::string(kEnvJob) + "=" + job};
  std::map<pid_t, std::string> marked;
  const std::vector<ProcessEntry> all = ListProcesses();
  const Parents parents = ParentsOf(all);
  const std::set<pid_t> self = OwnLine(parents);
  for (const ProcessEntry& entry : all) {
    std::string environment = EnvironmentOf(entry.pid);
    if (Holds(environment, mark) && !Variable(environment, kEnvIncarnation).empty() &&
        IsOwn(entry.pid) && !self.contains(entry.pid)) {
      marked.emplace(entry.pid, std::move(environment));
    }
  }
  present = !marked.empty();
  std::vector<JobProcess> workers;
  for (const auto& [pid, environment] : marked) {
    JobProcess worker = MakeProcess(JobRole::kWorker, pid, environment);
    // Once more, now that the start is known: the number may be that of another process since.
    if (HasPage(pid) && EnvironmentOf(pid) == environment) {
      workers.push_back(std::move(worker));
    }
  }
  std::vector<JobProcess> found = workers;
  AddAgents(marked, workers, parents, found);
  return found;
}

UniqueFd OpenVictim(const JobProcess& process) {
  UniqueFd pidfd = OpenPidfd(process.pid);
  // Opened first: what has the same start now is the process that the pidfd stands for.
  if (process.start == 0 || StartOf(process.pid) != process.start || HasEnded(pidfd)) {
    pidfd.Reset();
  }
  return pidfd;
}

Status SendSignal(const UniqueFd& pidfd, int signal) {
  if (::syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0) != 0) {
    return Status::Failed(std::string("the signal could not be sent: ") + strerror(errno));
  }
  return Status::Ok();
}

bool HasEnded(const UniqueFd& pidfd) {
  pollfd wait{pidfd.get(), POLLIN, 0};
  return !pidfd.valid() || ::poll(&wait, 1, 0) != 0;
}

Result<rlimit> ExhaustDescriptors(const JobProcess& process,
                                  const UniqueFd& pidfd,
                                  rlimit& lowered) {
  rlimit before{};
  const std::optional<rlim_t> lowest = LowestFreeDescriptor(process.pid);
  if (!lowest || ::prlimit(process.pid, RLIMIT_NOFILE, nullptr, &before) != 0) {
    return Status::Failed("its descriptors cannot be seen");
  }
  lowered = {std::min(*lowest, before.rlim_max), before.rlim_max};
  // There is no prlimit by pidfd. A pid is not used again before its process is reaped, and what
  // has not ended has not been reaped.
  if (HasEnded(pidfd)) {
    return Status::Failed("it has ended");
  }
  if (::prlimit(process.pid, RLIMIT_NOFILE, &lowered, nullptr) != 0) {
    return Status::Failed(std::string("its limit cannot be set: ") + strerror(errno));
  }
  if (HasEnded(pidfd)) {
    return Status::Failed("it has ended meanwhile");
  }
  return before;
}

void RestoreDescriptors(const JobProcess& process,
                        const UniqueFd& pidfd,
                        const rlimit& before,
                        const rlimit& lowered) {
  rlimit now{};
  if (HasEnded(pidfd) || ::prlimit(process.pid, RLIMIT_NOFILE, nullptr, &now) != 0 ||
      now.rlim_cur != lowered.rlim_cur) {
    return;
  }
  // The process may have lowered what it is allowed at the most.
  const rlimit back{std::min(before.rlim_cur, now.rlim_max), now.rlim_max};
  ::prlimit(process.pid, RLIMIT_NOFILE, &back, nullptr);
}

}  // namespace muster::launcher
