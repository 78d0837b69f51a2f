#include "bench/elastic_job.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>

#include "bench/process_waits.h"

namespace muster::bench {
namespace {

using Clock = std::chrono::steady_clock;

// The times stand in the trace, so nothing is gained by looking at once; and a bench that woke up
// for each line would take the job's cores from it.
constexpr int kPollMilliseconds = 5;
constexpr std::chrono::seconds kGrace{3};

// As decimal digits; std::to_string would do for all but the cooldown.
std::string Text(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g", value);
  return text.data();
}

std::vector<std::string> EnvironmentWithTrace(const std::string& path) {
  constexpr std::string_view kName = "MUSTER_TRACE=";
  std::vector<std::string> environment = CurrentEnvironment();
  std::erase_if(environment,
                [&](const std::string& variable) { return variable.starts_with(kName); });
  environment.push_back(std::string(kName) + path);
  return environment;
}

}  // namespace

std::vector<std::string> ElasticJobCommand(const ElasticJobOptions& options,
                                           const std::string& folder) {
  // A spare's slot on each host, so that it can take the place of whoever is lost.
  const int there = options.hosts == 1 ? 0 : options.workers / 2;
  std::string hosts = "localhost:" + std::to_string(options.workers - there + options.spares);
  if (there > 0) {
    hosts += ",127.0.0.1:" + std::to_string(there + options.spares);
  }
  const std::string workers = std::to_string(options.workers);
  const std::string cooldown = Text(options.cooldown_s);
  std::vector<std::string> command = {folder + "muster",
                                      "run",
                                      "-np",
                                      workers,
                                      "--min-np",
                                      "1",
                                      "--max-np",
                                      workers,
                                      "-H",
                                      hosts,
                                      "--blacklist-cooldown-range",
                                      cooldown,
                                      cooldown,
                                      "--spares",
                                      Text(options.spares)};
  command.insert(command.end(), options.muster_arguments.begin(), options.muster_arguments.end());
  // It would end after so many epochs in days only.
  command.insert(command.end(),
                 {folder + "examples/digits",
                  "--epochs",
                  "1000000000",
                  "--step-ms",
                  "0",
                  "--state-mb",
                  std::to_string(options.state_mb)});
  return command;
}

Result<std::unique_ptr<ElasticJob>> ElasticJob::Start(const ElasticJobOptions& options) {
  Result<TempDirectory> directory = TempDirectory::Make();
  if (!directory.ok()) {
    return directory.status();
  }
  Result<TraceTail> trace = TraceTail::Make(directory.value().path() + "/trace");
  if (!trace.ok()) {
    return trace.status();
  }
  std::unique_ptr<ElasticJob> job(
      new ElasticJob(std::move(directory).value(), std::move(trace).value()));
  Status status = job->Spawn(options);
  if (!status.ok()) {
    return status;
  }
  return job;
}

Status ElasticJob::Spawn(const ElasticJobOptions& options) {
  const UniqueFd error(
      ::open(error_path().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  const UniqueFd nothing(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  if (!error.valid() || !nothing.valid()) {
    return Status::Failed("cannot write " + error_path() + ": " + std::strerror(errno));
  }
  SpawnOptions spawn;
  spawn.argv = ElasticJobCommand(options, Beside(""));
  spawn.environment = EnvironmentWithTrace(trace_path());
  spawn.stdout_fd = nothing.get();
  spawn.stderr_fd = error.get();
  // The driver's own end ends all the rest of the job.
  spawn.parent_death_signal = SIGKILL;
  Result<SpawnedProcess> driver = muster::Spawn(spawn);
  if (!driver.ok()) {
    return driver.status();
  }
  driver_ = std::move(driver).value();
  return Status::Ok();
}

ElasticJob::~ElasticJob() {
  if (driver_.pid < 0) {
    return;
  }
  SignalPidfd(driver_.pidfd, SIGTERM);
  if (!EndsBy(driver_.pidfd, Clock::now() + kGrace)) {
    SignalPidfd(driver_.pidfd, SIGKILL);  // Its agents notice and kill what they run.
    EndsBy(driver_.pidfd, Clock::now() + kGrace);
  }
  static_cast<void>(Reap(driver_.pid));
}

Result<std::vector<TraceEvent>> ElasticJob::Next() {
  std::array<pollfd, 2> entries = {{{.fd = InterruptFd(), .events = POLLIN, .revents = 0},
                                    {.fd = driver_.pidfd.get(), .events = POLLIN, .revents = 0}}};
  if (::poll(entries.data(), entries.size(), kPollMilliseconds) < 0 && errno != EINTR) {
    return Status::Failed(std::string("cannot wait for the job: ") + std::strerror(errno));
  }
  if (entries[0].revents != 0) {
    return Status::Failed("interrupted");
  }
  if (entries[1].revents != 0) {
    return Status::Failed("the job ended");
  }
  return trace_.Read();
}

Status ElasticJob::Failure(const std::string& message) const {
  const std::string last = LastLines(error_path());
  return Status::Failed(message + (last.empty() ? "" : "; the last of its standard error:" + last));
}

}  // namespace muster::bench
