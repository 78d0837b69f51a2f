#pragma once

// Chaos: disturbs a job by a schedule, and undoes what it did. One loop thread, and that of the
// Undoer for what it does to processes; blocks in Run. If it is killed or stopped itself (SIGKILL,
// SIGSTOP), a stopped process, a lowered limit and a hook stay as they are.

#include <csignal>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/loop.h"
#include "launcher/chaos/hook.h"
#include "launcher/chaos/job_processes.h"
#include "launcher/chaos/report.h"
#include "launcher/chaos/schedule.h"
#include "launcher/chaos/undoer.h"

namespace muster::launcher {

/// What ends a run in order: all that would end or stop the process otherwise and is no fault.
sigset_t EndSignals();

class Chaos {
 public:
  /// `options.job` is a whole id and `options.kinds` what may happen. The caller has blocked
  /// EndSignals().
  Chaos(ChaosOptions options, uint64_t seed);
  ~Chaos();

  Status OpenLog() { return report_.Open(options_.log_file); }

  /// Until the job, the time or the count is over, or a signal comes; gives the exit code.
  int Run();

 private:
  struct Underway {
    ChaosEvent event;
    Duration lasts{};
    UniqueFd pidfd;
    rlimit before{};
    rlimit lowered{};
    std::vector<std::string> environment;  // Of the hook, the same for both calls.
    std::unique_ptr<Hook> hook;
    bool hook_begins = false;
    Loop::TimerId ends;
  };
  using Place = std::list<Underway>::iterator;

  void ArmNext();
  void OnDraw();
  void Begin(const ChaosKind& kind);
  void BeginOnProcess(ChaosEvent event);
  void BeginHook(ChaosEvent event);
  void OnHookBegun(Place place, const HookAnswer& answer);
  Status Act(Underway& underway);
  void UndoAfter(Place place, Duration lasts);
  static void Undo(const Underway& underway);
  void EndHookAfter(Place place, Duration lasts);
  void EndHook(Place place);
  void Finish(Place place);
  void Tell(const ChaosEvent& event);
  VictimRules Rules() const;
  bool HookIsUnderWay() const;
  void Look();
  bool DriverIsGone() const;
  void StopEvents(const std::string& why);
  void StopIfNothingIsLeft();
  void ContinueAll();

  const ChaosOptions options_;
  Loop loop_;
  Schedule schedule_;
  ChaosReport report_;
  Draw draw_;
  Instant began_;
  Instant present_;  // When something of the job was seen last.
  Loop::TimerId next_;
  UniqueFd signals_;
  uint64_t number_ = 0;
  bool stopping_ = false;
  std::list<Underway> underway_;
  // Killed, stopped for good, or to end with their host: until they have ended. What is stopped the
  // job ends, or it goes on when all is over.
  std::map<pid_t, UniqueFd> hurt_;
  Undoer undoer_;  // Last: it looks at what is under way, and posts to the loop.
};

}  // namespace muster::launcher
