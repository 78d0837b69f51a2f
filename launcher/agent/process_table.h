#pragma once

// ProcessTable: the worker processes of one host. It starts them, signals their groups, and tells
// when a worker is completely gone: its process reaped, its process group empty, and no process
// left that carries its incarnation in the environment (a child that called setsid). It decides
// nothing and knows no protocol; simulation swaps it.
//
// Threads: all methods and the callback on the loop thread, which must be the thread that lives as
// long as the process: the kernel kills the workers when it ends.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/ids.h"
#include "common/loop.h"
#include "common/process.h"

namespace muster::launcher {

class ProcessTable {
 public:
  virtual ~ProcessTable() = default;

  /// Forks a worker as the leader of its own group; gives its pid. Whether its program could be
  /// executed is told later: a disk that does not answer must not hold up the others' news.
  virtual Result<pid_t> Start(Incarnation worker, SpawnOptions options) = 0;
  /// Nothing happens if the worker's process has ended.
  virtual void SignalGroup(Incarnation worker, int signal) = 0;
  virtual void SignalProcess(Incarnation worker, int signal) = 0;
};

class LocalProcessTable final : public ProcessTable {
 public:
  struct Callbacks {
    /// Once per worker, before anything else. An error: its program could not be executed, and
    /// nothing else follows.
    std::function<void(Incarnation worker, const Status& status)> executed;
    /// `status` is that of the started process.
    std::function<void(Incarnation worker, ExitStatus status)> exited;
  };

  LocalProcessTable(Loop& loop, std::string job, Callbacks callbacks);
  ~LocalProcessTable() override;

  Result<pid_t> Start(Incarnation worker, SpawnOptions options) override;
  void SignalGroup(Incarnation worker, int signal) override;
  void SignalProcess(Incarnation worker, int signal) override;

  /// To be called on each SIGCHLD: reaps what has ended, orphans included.
  void OnChildSignal();

 private:
  class Scanner;
  struct Entry {
    pid_t pid = 0;                     // Also the group.
    SpawnOptions options;              // For the message, should the exec fail.
    UniqueFd report;                   // Until it is known how the exec went.
    bool failed = false;               // The exec.
    std::optional<ExitStatus> status;  // Set once it is reaped.
    Instant ended;
  };

  pid_t Running(Incarnation worker) const;  // 0: it has ended.
  void OnReport(Incarnation worker);
  void RequestScan();
  void OnScanned(const std::vector<std::pair<Incarnation, bool>>& left);
  bool Overdue(Incarnation worker, const Entry& entry) const;

  Loop& loop_;
  const Callbacks callbacks_;
  std::map<Incarnation, Entry> entries_;
  bool scanning_ = false;
  bool scan_again_ = false;
  Loop::TimerId rescan_;
  std::unique_ptr<Scanner> scanner_;  // Last: its thread posts to the loop about this object.
};

}  // namespace muster::launcher
