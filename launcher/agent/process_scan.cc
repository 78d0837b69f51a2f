#include "launcher/agent/process_scan.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "common/process.h"
#include "common/unique_fd.h"
#include "common/worker_page.h"

namespace muster::launcher {
namespace {

constexpr size_t kEnvironmentBytesMax = 8 << 20;
constexpr size_t kStatBytesMax = 4096;
constexpr long kLookAgainNanoseconds = 5'000'000;

// A descriptor that is kept in hand and given up for one look. Without it an agent that can open
// nothing more would see nobody stopped and nothing left, however many are.
class SpareDescriptor {
 public:
  SpareDescriptor() { Refill(); }

  UniqueFd Open(const char* path, int flags) {
    UniqueFd fd(::open(path, flags | O_CLOEXEC));
    if (!fd.valid() && (errno == EMFILE || errno == ENFILE)) {
      spare_.Reset();
      fd.Reset(::open(path, flags | O_CLOEXEC));
    }
    return fd;
  }
  /// To be called when what was opened is closed again. Moves to the lowest free number: one above
  /// a limit that was lowered meanwhile would be of no use.
  void Refill() {
    UniqueFd lowest(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!spare_.valid() || (lowest.valid() && lowest.get() < spare_.get())) {
      spare_ = std::move(lowest);
    }
  }

 private:
  UniqueFd spare_;
};

// One for each thread that scans: what it opens it closes before it opens something else.
SpareDescriptor& Spare() {
  thread_local SpareDescriptor spare;
  return spare;
}

std::string ReadFile(const std::string& path, size_t size_max) {
  SpareDescriptor& spare = Spare();
  UniqueFd fd = spare.Open(path.c_str(), O_RDONLY);
  std::string text;
  std::array<char, 4096> buffer;
  while (fd.valid() && text.size() < size_max) {
    const ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
    if (got <= 0) {
      break;
    }
    text.append(buffer.data(), static_cast<size_t>(got));
  }
  fd.Reset();
  spare.Refill();
  return text;
}

// The entries of a folder of /proc that are numbers: processes or threads.
std::vector<pid_t> NumbersIn(const std::string& path) {
  std::vector<pid_t> numbers;
  SpareDescriptor& spare = Spare();
  UniqueFd fd = spare.Open(path.c_str(), O_RDONLY | O_DIRECTORY);
  std::unique_ptr<DIR, int (*)(DIR*)> folder(::fdopendir(fd.get()), ::closedir);
  if (folder == nullptr) {
    return numbers;
  }
  fd.Release();                                           // The folder's now.
  while (const dirent* name = ::readdir(folder.get())) {  // NOLINT(concurrency-mt-unsafe)
    if (name->d_name[0] >= '1' && name->d_name[0] <= '9') {
      numbers.push_back(static_cast<pid_t>(std::strtol(name->d_name, nullptr, 10)));
    }
  }
  folder.reset();
  spare.Refill();
  return numbers;
}

// The name in parentheses may hold blanks and parentheses, so the fields are those after the last.
// False also for a zombie: but a process whose first thread alone has ended looks like one, and is
// told by its number of threads.
bool ParseLiving(const std::string& text, ProcessEntry& entry) {
  const size_t end = text.rfind(')');
  char state = 0;
  int threads = 0;
  if (end == std::string::npos ||
      std::sscanf(text.c_str() + end + 1,
                  " %c %d %d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %d",
                  &state,
                  &entry.parent,
                  &entry.group,
                  &threads) != 4) {
    return false;
  }
  return (state != 'Z' && state != 'X') || threads > 1;
}

std::vector<ProcessEntry> Marked(const std::vector<ProcessEntry>& all,
                                 const std::vector<std::string>& marks) {
  std::vector<ProcessEntry> victims;
  std::copy_if(all.begin(), all.end(), std::back_inserter(victims), [&](const ProcessEntry& entry) {
    return entry.pid != ::getpid() && EnvironmentHolds(entry.pid, marks);
  });
  return victims;
}

// A group is killed as one, so that a member that forks in this moment does not get away.
void KillAll(const std::vector<ProcessEntry>& victims) {
  std::set<pid_t> groups;
  for (const ProcessEntry& victim : victims) {
    if (victim.group > 1 && victim.group != ::getpgrp() && groups.insert(victim.group).second) {
      ::kill(-victim.group, SIGKILL);
    }
    ::kill(victim.pid, SIGKILL);
  }
}

// True if children are left that have not ended.
bool ReapEnded() {
  while (true) {
    const pid_t pid = ::waitpid(-1, nullptr, WNOHANG);
    if (pid == 0) {
      return true;
    }
    if (pid < 0 && errno != EINTR) {
      return false;
    }
  }
}

// Not all victims are children, so the next look comes after a while even without a SIGCHLD.
void WaitForChange() {
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  const timespec limit{0, kLookAgainNanoseconds};
  ::sigtimedwait(&child, nullptr, &limit);
}

}  // namespace

void KeepSpareDescriptor() {
  Spare();
}

std::vector<ProcessEntry> ListProcesses() {
  std::vector<ProcessEntry> entries;
  for (const pid_t pid : NumbersIn("/proc")) {
    ProcessEntry entry;
    entry.pid = pid;
    if (ParseLiving(ReadFile("/proc/" + std::to_string(pid) + "/stat", kStatBytesMax), entry)) {
      entries.push_back(entry);
    }
  }
  return entries;
}

std::vector<ProcessEntry> DescendantsOf(pid_t ancestor, const std::vector<ProcessEntry>& all) {
  std::multimap<pid_t, const ProcessEntry*> children;
  for (const ProcessEntry& entry : all) {
    children.emplace(entry.parent, &entry);
  }
  std::vector<ProcessEntry> found;
  std::set<pid_t> seen{ancestor};  // A pid reused while /proc was read could close a circle.
  std::vector<pid_t> open{ancestor};
  while (!open.empty()) {
    const pid_t parent = open.back();
    open.pop_back();
    const auto [first, last] = children.equal_range(parent);
    for (auto it = first; it != last; ++it) {
      if (seen.insert(it->second->pid).second) {
        found.push_back(*it->second);
        open.push_back(it->second->pid);
      }
    }
  }
  return found;
}

std::string ThreadStates(pid_t pid, std::initializer_list<pid_t> threads) {
  std::string states;
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task/";
  for (const pid_t thread : threads) {
    const std::string text = ReadFile(tasks + std::to_string(thread) + "/stat", kStatBytesMax);
    // The name in parentheses may hold anything; the state is the first field after it.
    const size_t end = text.rfind(") ");
    if (end != std::string::npos && end + 2 < text.size()) {
      states.push_back(text[end + 2]);
    }
  }
  return states;
}

std::string ThreadStates(pid_t pid) {
  std::string states;
  for (const pid_t thread : NumbersIn("/proc/" + std::to_string(pid) + "/task")) {
    states += ThreadStates(pid, {thread});
  }
  return states;
}

std::string EnvironmentOf(pid_t pid) {
  const std::string text =
      ReadFile("/proc/" + std::to_string(pid) + "/environ", kEnvironmentBytesMax);
  return text.empty() ? text : '\0' + text;
}

bool Holds(std::string_view environment, std::span<const std::string> entries) {
  return !environment.empty() &&
         std::all_of(entries.begin(), entries.end(), [&](const std::string& entry) {
           return environment.find('\0' + entry + '\0') != std::string_view::npos;
         });
}

bool EnvironmentHolds(pid_t pid, std::span<const std::string> entries) {
  return Holds(EnvironmentOf(pid), entries);
}

bool Sweep(const SweepTarget& target, Duration limit) {
  const Instant deadline = SteadyClock().Now() + limit;
  std::vector<std::string> marks{std::string(kEnvJob) + "=" + target.job,
                                 std::string(kEnvHost) + "=" + target.host};
  if (!target.directory.empty()) {
    marks.push_back(std::string(kEnvAgentDirectory) + "=" + target.directory);
  }
  while (true) {
    const bool children_left = target.descendants && ReapEnded();
    // First what needs no look into an environment: that waits for as long as its process holds
    // the lock of its memory, whosever it is, and a lease may be over.
    const std::vector<ProcessEntry> all = ListProcesses();
    const std::vector<ProcessEntry> below =
        target.descendants ? DescendantsOf(::getpid(), all) : std::vector<ProcessEntry>{};
    KillAll(below);
    const std::vector<ProcessEntry> marked = Marked(all, marks);
    KillAll(marked);
    if (below.empty() && marked.empty() && !children_left) {
      return true;
    }
    if (SteadyClock().Now() >= deadline) {
      return false;
    }
    WaitForChange();
  }
}

}  // namespace muster::launcher
