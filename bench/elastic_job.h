#pragma once

// ElasticJob: `muster run` with examples/digits, whose trace is read as it grows. The job ends with
// its owner, however that ends.
//
// One thread, which lives as long as the process. SIGINT and SIGTERM are to be blocked in it.

#include <memory>
#include <string>
#include <vector>

#include "bench/driver_process.h"
#include "bench/temp_directory.h"
#include "bench/trace_tail.h"

namespace muster::bench {

struct ElasticJobOptions {
  int workers = 4;
  int hosts = 1;  // 2: "hosts" of this machine, which talk over TCP.
  int spares = 0;
  int state_mb = 0;
  double cooldown_s = 0.5;  // How long a slot rests after a loss.
  /// Further arguments of `muster run`.
  std::vector<std::string> muster_arguments;
};

/// The whole command line; `folder` holds the programs.
std::vector<std::string> ElasticJobCommand(const ElasticJobOptions& options,
                                           const std::string& folder);

class ElasticJob {
 public:
  static Result<std::unique_ptr<ElasticJob>> Start(const ElasticJobOptions& options);
  /// What has happened since, after a wait of some milliseconds. An error: the job has ended, or
  /// the user wants to stop.
  Result<std::vector<TraceEvent>> Next();

  /// The message with the end of the job's standard error.
  Status Failure(const std::string& message) const { return driver_.Failure(message); }

 private:
  ElasticJob(TempDirectory directory, TraceTail trace, DriverProcess driver)
      : directory_(std::move(directory)), trace_(std::move(trace)), driver_(std::move(driver)) {}

  TempDirectory directory_;  // Outlives the driver, which writes into it.
  TraceTail trace_;
  DriverProcess driver_;
};

}  // namespace muster::bench
