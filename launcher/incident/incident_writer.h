#pragma once

// IncidentWriter: appends the incidents of one job to its record, each in one write(). Records lie
// in the home directory unless told otherwise, which may be on a network that hangs; a driver that
// waits for it would look dead to its agents. Hence a thread of its own for all that touches the
// disk, unlike MUSTER_TRACE, which somebody has asked for. The trouble of a disk costs the record,
// with one warning, never the job.
//
// Thread contract: one owner calls everything.

#include <atomic>
#include <deque>
#include <string>
#include <thread>
#include <utility>

#include "common/clock.h"
#include "common/mutex.h"
#include "common/unique_fd.h"
#include "launcher/incident/incident.h"

namespace muster::launcher {

class IncidentWriter {
 public:
  /// An empty directory: nothing is kept.
  explicit IncidentWriter(std::string directory) : directory_(std::move(directory)) {}
  ~IncidentWriter();
  IncidentWriter(const IncidentWriter&) = delete;
  IncidentWriter& operator=(const IncidentWriter&) = delete;

  /// Once. Makes the record, and removes old ones.
  void Start(const JobRecord& job);
  void Write(Incident incident);

  /// Writes what is queued, and begins nothing new after `patience`.
  void Finish(Duration patience);

 private:
  void Run();
  bool Next(Incident& incident);
  bool Open();
  void Append(const std::string& line);
  void WarnOnce(const std::string& why);

  const std::string directory_;
  JobRecord job_;  // Set before the thread starts.

  // The thread's own.
  UniqueFd record_;
  bool warned_ = false;

  std::atomic<bool> dropped_ = false;  // The queue was full.
  Mutex mutex_;
  CondVar changed_;
  std::deque<Incident> queue_ MUSTER_GUARDED_BY(mutex_);
  bool finishing_ MUSTER_GUARDED_BY(mutex_) = false;
  bool given_up_ MUSTER_GUARDED_BY(mutex_) = false;
  bool ended_ MUSTER_GUARDED_BY(mutex_) = false;
  std::jthread thread_;
};

}  // namespace muster::launcher
