#pragma once

// What whoever starts processes waits with: a deadline, the end of a process, the wish of the user
// to stop. No state but the one descriptor for signals that a process has.
//
// One thread. SIGINT and SIGTERM are to be blocked in it.

#include <string>

#include "bench/order.h"
#include "common/unique_fd.h"

namespace muster::bench {

/// In main, before any thread is started: whoever waits sees SIGINT and SIGTERM (InterruptFd) and
/// ends what it started.
void BlockInterrupts();
/// For poll(2): at least 0, at most a minute.
int MillisecondsUntil(Deadline deadline);
/// Readable once SIGINT or SIGTERM has come.
int InterruptFd();

/// True if the process ended in time.
bool EndsBy(const UniqueFd& pidfd, Deadline deadline);
/// Nothing happens to a process that has ended.
void SignalPidfd(const UniqueFd& pidfd, int signal);

/// The end of a file of text, indented, each line after a newline; empty: there is none.
std::string LastLines(const std::string& path);

/// The path of a program that the build puts beside this one.
std::string Beside(const std::string& program);

}  // namespace muster::bench
