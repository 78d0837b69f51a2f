#pragma once

// DriverProcess: one `muster run`, which ends with its owner, however that ends; and with it all
// that belongs to the job.
//
// One thread, which lives as long as the process. SIGINT and SIGTERM are to be blocked in it.

#include <string>
#include <vector>

#include "common/process.h"

namespace muster::bench {

class DriverProcess {
 public:
  /// `variables` ("NAME=value") replace those of the environment; standard error is appended to
  /// the file, standard output is dropped.
  static Result<DriverProcess> Start(std::vector<std::string> command,
                                     const std::vector<std::string>& variables,
                                     std::string error_path);
  ~DriverProcess();
  DriverProcess(DriverProcess&&) = default;
  DriverProcess& operator=(DriverProcess&&) = delete;

  /// Readable once it has ended.
  int pidfd() const { return process_.pidfd.get(); }
  const std::string& error_path() const { return error_path_; }
  /// The message with the end of its standard error.
  Status Failure(const std::string& message) const;

 private:
  DriverProcess(SpawnedProcess process, std::string error_path)
      : process_(std::move(process)), error_path_(std::move(error_path)) {}

  SpawnedProcess process_;  // Moved from: without a pidfd.
  std::string error_path_;
};

}  // namespace muster::bench
