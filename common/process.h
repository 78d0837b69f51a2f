#pragma once

// The one file that forks and executes. Children get exactly the descriptors, environment and
// directory that SpawnOptions names; their pid is watched through a pidfd. Thread-safe, but call
// it from a thread that lives as long as the daemon where the kernel ties something to the
// spawning thread.

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"
#include "common/unique_fd.h"

namespace muster {

struct SpawnOptions {
  std::vector<std::string> argv;         // argv[0] is looked up in the PATH of `environment`.
  std::vector<std::string> environment;  // "NAME=value"
  std::string directory;                 // Empty: the caller's.
  int stdin_fd = -1;                     // -1: /dev/null.
  int stdout_fd = -1;                    // -1: the caller's.
  int stderr_fd = -1;                    // -1: the caller's.
  std::vector<int> inherited;            // Kept open under the same numbers.
  bool new_group = true;                 // The child leads its own process group.
  bool new_session = false;  // It leads its own session and group: it has no terminal to ask at.
  bool limit_core_dump = false;  // RLIMIT_CORE of 1 byte (0 would not stop a piped pattern).
  // Sent to the child when the *thread* that called Spawn ends; 0: nothing.
  int parent_death_signal = 0;
};

struct SpawnedProcess {
  pid_t pid = -1;
  UniqueFd pidfd;  // Readable when the process has ended.
};

/// A child that is about to execute.
struct ForkedProcess {
  SpawnedProcess process;
  UniqueFd report;  // Readable when it is known how the exec went: see ReadExecReport.
};

/// Signals of the child are reset to their defaults, except that an ignored SIGHUP stays ignored.
/// Does not wait for the exec, which takes as long as the disk takes on which directory and program
/// lie: for ever, if that is one of another machine which is gone.
Result<ForkedProcess> Fork(const SpawnOptions& options);
/// How the exec went of a child that was forked with these options. An error names the file and the
/// reason, and the child ends. Ok also if the child was killed before it came to that.
Status ReadExecReport(const SpawnOptions& options, int report);

/// Both: waits for the exec, and reaps the child if that fails.
Result<SpawnedProcess> Spawn(const SpawnOptions& options);

/// The exit code of an ended child, or 128 + signal; reaps it.
struct ExitStatus {
  int code = 0;
  int signal = 0;  // 0: it exited by itself.
};
/// Reaps `pid` if it has ended. kUnavailable: still running. kFailed: no such child.
Result<ExitStatus> Reap(pid_t pid);
/// A child that has ended and is still to be reaped, so that its pid and group cannot be those of
/// another process yet; 0: none.
pid_t EndedChild();

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};
/// Both ends close on exec.
Result<Pipe> MakePipe();

/// pidfd_open(2).
UniqueFd OpenPidfd(pid_t pid);

/// True while any process (zombies apart) is in the group.
bool GroupExists(pid_t group);

/// The environment of the caller, as "NAME=value".
std::vector<std::string> CurrentEnvironment();

}  // namespace muster
