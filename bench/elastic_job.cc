#include "bench/elastic_job.h"

#include <poll.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "bench/process_waits.h"

namespace muster::bench {
namespace {

// The times stand in the trace, so nothing is gained by looking at once; and a bench that woke up
// for each line would take the job's cores from it.
constexpr int kPollMilliseconds = 5;

// As decimal digits; std::to_string would do for all but the cooldown.
std::string Text(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g", value);
  return text.data();
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
  const std::string trace_path = directory.value().path() + "/trace";
  Result<TraceTail> trace = TraceTail::Make(trace_path);
  if (!trace.ok()) {
    return trace.status();
  }
  Result<DriverProcess> driver = DriverProcess::Start(ElasticJobCommand(options, Beside("")),
                                                      {"MUSTER_TRACE=" + trace_path},
                                                      directory.value().path() + "/stderr");
  if (!driver.ok()) {
    return driver.status();
  }
  return std::unique_ptr<ElasticJob>(new ElasticJob(
      std::move(directory).value(), std::move(trace).value(), std::move(driver).value()));
}

Result<std::vector<TraceEvent>> ElasticJob::Next() {
  std::array<pollfd, 2> entries = {{{.fd = InterruptFd(), .events = POLLIN, .revents = 0},
                                    {.fd = driver_.pidfd(), .events = POLLIN, .revents = 0}}};
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

}  // namespace muster::bench
