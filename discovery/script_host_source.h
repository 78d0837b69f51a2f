#pragma once

// ScriptHostSource: hosts from what a command prints. The command line goes to /bin/sh afresh at
// every poll (so a symlink may be swapped), in its own process group, which is killed as a whole
// when the command has ended, is late, says too much, is cancelled, or this process dies. Output
// and error output are bounded; nothing is written anywhere.
//
// Thread contract: Poll from one thread at a time; Cancel from any, as often as one likes.

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "common/process.h"
#include "common/unique_fd.h"
#include "discovery/group_guard.h"
#include "discovery/host_list.h"
#include "discovery/host_source.h"

namespace muster::discovery {

class ScriptHostSource final : public HostSource {
 public:
  /// `script` is for `/bin/sh -c`; `environment` ("NAME=value") is all that it gets.
  ScriptHostSource(std::string script,
                   DefaultSlots default_slots,
                   Duration timeout,
                   std::vector<std::string> environment = CurrentEnvironment());
  ~ScriptHostSource() override;

  /// Errors name the script, and its exit code and error output (or the bad line). kTimeout: it was
  /// killed after `timeout`. kAborted: cancelled.
  Result<HostList> Poll() override;
  void Cancel() override;

 private:
  struct Run;  // One running script.

  Status Start(Run& run);
  Status ReadUntilEnd(Run& run);
  Result<HostList> Judge(const Run& run, const ExitStatus& exit) const;
  Status End(Run& run, ExitStatus* exit);
  bool IsCancelled() const;
  std::string Name() const;

  const std::string script_;
  const DefaultSlots default_slots_;
  const Duration timeout_;
  const std::vector<std::string> environment_;
  const SteadyClock clock_;
  GroupGuard guard_;
  UniqueFd cancelled_;   // eventfd; stays readable once Cancel was called.
  pid_t left_over_ = 0;  // A killed script that would not die in time; no other runs beside it.
};

}  // namespace muster::discovery
