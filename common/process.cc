#include "common/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string_view>

#include "common/network.h"
#include "common/open_files.h"

namespace muster {
namespace {

// What children get back; 0: nothing was raised.
std::atomic<uint64_t> open_files_before_raise = 0;

constexpr int kFirstSpareFd = 3;

std::string Lookup(const std::vector<std::string>& environment, std::string_view name) {
  for (const std::string& entry : environment) {
    if (entry.size() > name.size() && entry.compare(0, name.size(), name) == 0 &&
        entry[name.size()] == '=') {
      return entry.substr(name.size() + 1);
    }
  }
  return {};
}

// Candidates in the order of execvp(3), made before the fork: nothing allocates after it.
std::vector<std::string> Candidates(const SpawnOptions& options) {
  const std::string& file = options.argv.front();
  if (file.find('/') != std::string::npos) {
    return {file};
  }
  std::string path = Lookup(options.environment, "PATH");
  if (path.empty()) {
    path = "/usr/local/bin:/usr/bin:/bin";
  }
  std::vector<std::string> candidates;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find(':', begin), path.size());
    const std::string folder = end == begin ? "." : path.substr(begin, end - begin);
    candidates.push_back(folder + "/" + file);
    begin = end + 1;
  }
  return candidates;
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  pointers.reserve(strings.size() + 1);
  for (const std::string& text : strings) {
    pointers.push_back(const_cast<char*>(text.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

struct ChildPlan {
  const SpawnOptions* options;
  const std::vector<char*>* candidates;
  char* const* argv;
  char* const* environment;
  int null_fd;
  int report_fd;
  pid_t parent;
};

// From here to exec only async-signal-safe calls: other threads of the parent may hold any lock.
void ResetSignals() {
  struct sigaction hangup {};
  sigaction(SIGHUP, nullptr, &hangup);
  const bool hangup_ignored = hangup.sa_handler == SIG_IGN;
  struct sigaction fresh {};
  fresh.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) {
    if (signal != SIGHUP || !hangup_ignored) {
      sigaction(signal, &fresh, nullptr);
    }
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

bool Keep(const ChildPlan& plan, int fd) {
  return fd == plan.report_fd ||
         std::find(plan.options->inherited.begin(), plan.options->inherited.end(), fd) !=
             plan.options->inherited.end();
}

void CloseTheRest(const ChildPlan& plan) {
  // Marked, not closed: report_fd must live until exec. The loop covers gaps between kept ones.
  syscall(SYS_close_range, kFirstSpareFd, ~0U, 4U /* CLOSE_RANGE_CLOEXEC */);
  for (const int fd : plan.options->inherited) {
    if (Keep(plan, fd)) {
      fcntl(fd, F_SETFD, 0);
    }
  }
}

// Each source is first copied above the standard three, so that none is overwritten too early.
bool PlaceStandardFds(const ChildPlan& plan) {
  const int wanted[3] = {plan.options->stdin_fd < 0 ? plan.null_fd : plan.options->stdin_fd,
                         plan.options->stdout_fd < 0 ? 1 : plan.options->stdout_fd,
                         plan.options->stderr_fd < 0 ? 2 : plan.options->stderr_fd};
  int copies[3];
  for (int i = 0; i < 3; ++i) {
    copies[i] = fcntl(wanted[i], F_DUPFD_CLOEXEC, kFirstSpareFd);
  }
  for (int i = 0; i < 3; ++i) {
    if (copies[i] >= 0 && dup2(copies[i], i) < 0) {
      return false;
    }
  }
  return true;
}

void SetLimits(const SpawnOptions& options) {
  if (options.limit_core_dump) {
    const rlimit one_byte{1, 1};
    setrlimit(RLIMIT_CORE, &one_byte);
  }
  const uint64_t soft = open_files_before_raise;
  rlimit files{};
  if (soft != 0 && getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = std::min<rlim_t>(soft, files.rlim_max);
    setrlimit(RLIMIT_NOFILE, &files);
  }
}

// What the child tells if it cannot execute.
struct StartTrouble {
  int error = 0;
  bool in_directory = true;  // False: the directory was the trouble.
};

[[noreturn]] void RunChild(const ChildPlan& plan) {
  if (plan.options->new_session) {
    setsid();
  } else if (plan.options->new_group) {
    setpgid(0, 0);
  }
  ResetSignals();
  if (plan.options->parent_death_signal != 0) {
    prctl(PR_SET_PDEATHSIG, plan.options->parent_death_signal);
    if (getppid() != plan.parent) {
      _exit(127);  // The parent died before the kernel was told.
    }
  }
  int error = 0;
  if (!PlaceStandardFds(plan)) {
    error = errno;
  }
  CloseTheRest(plan);
  SetLimits(*plan.options);
  bool in_directory = true;
  if (error == 0 && !plan.options->directory.empty() &&
      chdir(plan.options->directory.c_str()) != 0) {
    error = errno;
    in_directory = false;
  }
  if (error == 0) {
    error = ENOENT;
    for (char* candidate : *plan.candidates) {
      if (candidate == nullptr) {
        break;
      }
      execve(candidate, plan.argv, plan.environment);
      if (errno != ENOENT && errno != ENOTDIR) {
        error = errno;
      }
    }
  }
  const StartTrouble trouble{error, in_directory};
  [[maybe_unused]] const ssize_t size = write(plan.report_fd, &trouble, sizeof trouble);
  _exit(127);
}

}  // namespace

Result<Pipe> MakePipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) {
    return Status::Failed("pipe: " + ErrorText(errno));
  }
  return Pipe{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

UniqueFd OpenPidfd(pid_t pid) {
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

Result<ForkedProcess> Fork(const SpawnOptions& options) {
  MUSTER_CHECK(!options.argv.empty(), "nothing to run");
  Result<Pipe> report = MakePipe();
  if (!report.ok()) {
    return report.status();
  }
  const UniqueFd null_fd(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const std::vector<std::string> candidates = Candidates(options);
  const std::vector<char*> candidate_pointers = Pointers(candidates);
  const std::vector<char*> argv = Pointers(options.argv);
  const std::vector<char*> environment = Pointers(options.environment);
  const ChildPlan plan{&options,
                       &candidate_pointers,
                       argv.data(),
                       environment.data(),
                       null_fd.get(),
                       report.value().write.get(),
                       ::getpid()};
  const pid_t pid = ::fork();
  if (pid < 0) {
    return Status::Failed("fork: " + ErrorText(errno));
  }
  if (pid == 0) {
    RunChild(plan);
  }
  if (options.new_group && !options.new_session) {
    ::setpgid(pid, pid);  // Also here: a signal to the group may be sent before the child ran.
  }
  return ForkedProcess{{pid, OpenPidfd(pid)}, std::move(report.value().read)};
}

Status ReadExecReport(const SpawnOptions& options, int report) {
  StartTrouble trouble;
  ssize_t size = 0;
  do {
    size = ::read(report, &trouble, sizeof trouble);
  } while (size < 0 && errno == EINTR);
  if (size != sizeof trouble) {
    return Status::Ok();
  }
  const std::string where = options.directory.empty() ? "" : " in " + options.directory;
  return Status::Failed((trouble.in_directory
                             ? "cannot run " + options.argv.front() + where
                             : "cannot change to the directory " + options.directory) +
                        ": " + ErrorText(trouble.error));
}

Result<SpawnedProcess> Spawn(const SpawnOptions& options) {
  Result<ForkedProcess> forked = Fork(options);
  if (!forked.ok()) {
    return forked.status();
  }
  ForkedProcess child = std::move(forked).value();
  if (Status executed = ReadExecReport(options, child.report.get()); !executed.ok()) {
    ::waitpid(child.process.pid, nullptr, 0);
    return executed;
  }
  return std::move(child.process);
}

Result<ExitStatus> Reap(pid_t pid) {
  int status = 0;
  const pid_t got = ::waitpid(pid, &status, WNOHANG);
  if (got == 0) {
    return Status(StatusCode::kUnavailable, "still running");
  }
  if (got < 0) {
    return Status::Failed("no child " + std::to_string(pid));
  }
  if (WIFSIGNALED(status)) {
    return ExitStatus{128 + WTERMSIG(status), WTERMSIG(status)};
  }
  return ExitStatus{WEXITSTATUS(status), 0};
}

pid_t EndedChild() {
  siginfo_t info{};
  if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0) {
    return 0;
  }
  return info.si_pid;
}

// kill(-group, 0) also finds zombies that nobody has reaped yet, so those are looked at in /proc.
bool GroupExists(pid_t group) {
  if (::kill(-group, 0) != 0 && errno == ESRCH) {
    return false;
  }
  DIR* folder = ::opendir("/proc");
  if (folder == nullptr) {
    return true;
  }
  bool found = false;
  while (const dirent* entry = ::readdir(folder)) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') {
      continue;
    }
    std::ifstream file(std::string("/proc/") + entry->d_name + "/stat");
    std::string line;
    std::getline(file, line);
    const size_t end = line.rfind(')');
    char state = 0;
    int parent = 0;
    int its_group = 0;
    if (end != std::string::npos &&
        std::sscanf(line.c_str() + end + 1, " %c %d %d", &state, &parent, &its_group) == 3 &&
        its_group == group && state != 'Z' && state != 'X') {
      found = true;
      break;
    }
  }
  ::closedir(folder);
  return found;
}

std::vector<std::string> CurrentEnvironment() {
  std::vector<std::string> entries;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {  // clearenv(3)
    entries.emplace_back(*entry);
  }
  return entries;
}

Status RaiseOpenFiles() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return Status::Failed(std::string("getrlimit: ") + strerror(errno));
  }
  const rlim_t original = limit.rlim_cur;
  limit.rlim_cur = limit.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) {
    return Status::Failed("the limit of open files stays at " + std::to_string(original) + ": " +
                          strerror(errno));
  }
  open_files_before_raise = original;
  return Status::Ok();
}

}  // namespace muster
