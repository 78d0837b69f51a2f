#include "bench/driver_process.h"

#include <fcntl.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "bench/process_waits.h"

namespace muster::bench {
namespace {

using Clock = std::chrono::steady_clock;

// How long a driver may take to end after SIGTERM.
constexpr std::chrono::seconds kGrace{3};

std::vector<std::string> EnvironmentWith(const std::vector<std::string>& variables) {
  std::vector<std::string> environment = CurrentEnvironment();
  for (const std::string& variable : variables) {
    const std::string name = variable.substr(0, variable.find('=') + 1);
    std::erase_if(environment, [&](const std::string& old) { return old.starts_with(name); });
    environment.push_back(variable);
  }
  return environment;
}

}  // namespace

Result<DriverProcess> DriverProcess::Start(std::vector<std::string> command,
                                           const std::vector<std::string>& variables,
                                           std::string error_path) {
  const UniqueFd error(::open(error_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  const UniqueFd nothing(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (!error.valid() || !nothing.valid()) {
    return Status::Failed("cannot write " + error_path + ": " + std::strerror(errno));
  }
  SpawnOptions options;
  options.argv = std::move(command);
  options.environment = EnvironmentWith(variables);
  options.stdout_fd = nothing.get();
  options.stderr_fd = error.get();
  // The driver's own end ends all the rest of the job.
  options.parent_death_signal = SIGKILL;
  Result<SpawnedProcess> process = Spawn(options);
  if (!process.ok()) {
    return process.status();
  }
  return DriverProcess(std::move(process).value(), std::move(error_path));
}

DriverProcess::~DriverProcess() {
  if (!process_.pidfd.valid()) {
    return;
  }
  SignalPidfd(process_.pidfd, SIGTERM);
  if (!EndsBy(process_.pidfd, Clock::now() + kGrace)) {
    SignalPidfd(process_.pidfd, SIGKILL);  // Its agents notice and kill what they run.
    EndsBy(process_.pidfd, Clock::now() + kGrace);
  }
  static_cast<void>(Reap(process_.pid));
}

Status DriverProcess::Failure(const std::string& message) const {
  const std::string last = LastLines(error_path_);
  return Status::Failed(message + (last.empty() ? "" : "; the last of its standard error:" + last));
}

}  // namespace muster::bench
