#pragma once

// Sleeper: a child of the test that does nothing, with this environment, until it is killed.

#include <signal.h>
#include <sys/wait.h>

#include <string>
#include <utility>
#include <vector>

#include "common/process.h"

namespace muster {

class Sleeper {
 public:
  explicit Sleeper(std::vector<std::string> environment) {
    SpawnOptions options;
    options.argv = {"/bin/sleep", "600"};
    options.environment = std::move(environment);
    process_ = Spawn(options).value();
  }
  ~Sleeper() {
    ::kill(process_.pid, SIGKILL);
    ::waitpid(process_.pid, nullptr, 0);
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  pid_t pid() const { return process_.pid; }
  /// Reaps it, if so.
  bool Ended() const { return Reap(process_.pid).ok(); }

 private:
  SpawnedProcess process_;
};

}  // namespace muster
