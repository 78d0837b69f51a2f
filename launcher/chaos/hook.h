#pragma once

// Hook: one call of a user's program, `PROGRAM begin` or `PROGRAM end`. What it prints is kept: a
// line `host NAME` says that it holds something about this host, and the rest is a note for the
// log. It is killed with its group when it takes longer than a hook may, and given up if it does
// not end then either. On the loop thread.

#include <functional>
#include <string>
#include <vector>

#include "common/loop.h"
#include "common/process.h"
#include "common/status.h"

namespace muster::launcher {

struct HookAnswer {
  std::string host;   // Empty: none named.
  std::string note;   // What it printed otherwise, in one line, cut at 200 bytes.
  std::string error;  // Empty: it exited with 0. What it has left in its group is killed.
};

class Hook {
 public:
  using Callback = std::function<void(const HookAnswer&)>;

  /// Calls back once, from the loop; not if it is destroyed before, which kills it. `limit` is what
  /// one call may take.
  Hook(Loop& loop,
       const std::string& program,
       const std::string& word,
       std::vector<std::string> environment,
       Callback done,
       Duration limit = std::chrono::seconds(10));
  ~Hook();
  Hook(const Hook&) = delete;
  Hook& operator=(const Hook&) = delete;

 private:
  void OnLate();
  void OnEnded();
  void ReadOutput();
  void Finish(const std::string& error);

  Loop& loop_;
  UniqueFd pipe_;
  std::string output_;
  SpawnedProcess process_;
  Loop::TimerId limit_;
  Callback done_;
};

/// What marks a process as a worker's is left out: a hook is none, whoever started chaos.
struct HookMarks {
  std::string job;
  uint64_t number = 0;
  uint64_t draw = 0;
  Duration lasts{};
};
/// `inherited` with the marks of an event; any that it has already give way. Pure.
std::vector<std::string> HookEnvironment(std::vector<std::string> inherited,
                                         const HookMarks& marks);

/// What a hook's output says. Pure.
HookAnswer ReadHookOutput(const std::string& output);

/// The names of the programs in a folder that can be names of kinds, in order. An error if somebody
/// else than the user and root could change what is run.
Result<std::vector<std::string>> ListHooks(const std::string& folder);

}  // namespace muster::launcher
