#pragma once

// IncidentWriter: appends the incidents of one job to its record, each in one write(). Records lie
// in the home directory unless told otherwise, which may be on a network that hangs; a driver that
// waits for it would look dead to its agents. Hence a thread of its own for all that touches the
// disk, unlike MUSTER_TRACE, which somebody has asked for. The trouble of a disk costs the record,
// with one warning, never the job.
//
// Thread contract: one owner calls everything.

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "common/clock.h"
#include "common/status.h"
#include "common/unique_fd.h"
#include "launcher/incident/incident.h"
#include "launcher/incident/record_store.h"

namespace muster::launcher {

class IncidentWriter {
 public:
  /// Opens the record of a job. Called by the thread.
  using Open =
      std::function<Result<UniqueFd>(const std::string& directory, const std::string& job)>;

  /// An empty directory: nothing is kept.
  explicit IncidentWriter(std::string directory, Open open = CreateRecord);
  ~IncidentWriter();
  IncidentWriter(const IncidentWriter&) = delete;
  IncidentWriter& operator=(const IncidentWriter&) = delete;

  /// Once. Makes the record, and removes old ones.
  void Start(const JobRecord& job);
  void Write(Incident incident);

  /// Writes what is queued, and begins nothing new after `patience`. A disk that hangs is left to
  /// itself soon after.
  void Finish(Duration patience);

 private:
  struct Work;

  // Shared with the thread, which outlives this object where the disk hangs.
  const std::shared_ptr<Work> work_;
  std::thread thread_;
};

}  // namespace muster::launcher
