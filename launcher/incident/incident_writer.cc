#include "launcher/incident/incident_writer.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>
#include <utility>

#include "common/log.h"
#include "common/mutex.h"
#include "launcher/incident/incident_json.h"

namespace muster::launcher {
namespace {

// A disk that hangs for so many changes of world has lost its record.
constexpr size_t kQueuedMax = 1000;

// For a thread that is told to give up and has nothing to wait for.
constexpr Duration kGoodbyeTime = std::chrono::milliseconds(100);

}  // namespace

struct IncidentWriter::Work {
  Work(std::string in, Open how) : directory(std::move(in)), open(std::move(how)) {}

  void Run();
  bool Next(Incident& incident);
  bool Begin();
  void Append(const std::string& line);
  void WarnOnce(const std::string& why);
  /// False: it has not ended within the time.
  bool AwaitEnd(Duration patience) MUSTER_REQUIRES(mutex);

  const std::string directory;
  const Open open;
  JobRecord job;  // Set before the thread starts.

  // The thread's own.
  UniqueFd record;
  bool warned = false;

  std::atomic<bool> dropped = false;  // The queue was full.
  Mutex mutex;
  CondVar changed;
  std::deque<Incident> queue MUSTER_GUARDED_BY(mutex);
  bool finishing MUSTER_GUARDED_BY(mutex) = false;
  bool given_up MUSTER_GUARDED_BY(mutex) = false;
  bool ended MUSTER_GUARDED_BY(mutex) = false;
};

IncidentWriter::IncidentWriter(std::string directory, Open open)
    : work_(std::make_shared<Work>(std::move(directory), std::move(open))) {}

IncidentWriter::~IncidentWriter() {
  Finish(Duration::zero());
}

void IncidentWriter::Start(const JobRecord& job) {
  if (work_->directory.empty()) {
    spdlog::info("no incidents are kept: there is no HOME, and no --incident-dir");
    return;
  }
  work_->job = job;
  thread_ = std::thread([work = work_] { work->Run(); });
}

void IncidentWriter::Write(Incident incident) {
  if (!thread_.joinable()) {
    return;
  }
  const MutexLock lock(work_->mutex);
  if (work_->queue.size() >= kQueuedMax) {
    work_->dropped = true;
    return;
  }
  work_->queue.push_back(std::move(incident));
  work_->changed.NotifyAll();
}

void IncidentWriter::Finish(Duration patience) {
  if (!thread_.joinable()) {
    return;
  }
  bool ended = false;
  {
    const MutexLock lock(work_->mutex);
    work_->finishing = true;
    work_->changed.NotifyAll();
    ended = work_->AwaitEnd(patience);
    work_->given_up = true;
    ended = ended || work_->AwaitEnd(kGoodbyeTime);
  }
  if (ended) {
    thread_.join();
  } else {
    // It sits in the kernel, where nobody can end it but the end of the process.
    thread_.detach();
  }
}

bool IncidentWriter::Work::AwaitEnd(Duration patience) {
  const SteadyClock clock;
  const Instant until = clock.Now() + patience;
  for (Instant now = clock.Now(); !ended && now < until; now = clock.Now()) {
    changed.WaitFor(mutex, until - now);
  }
  return ended;
}

void IncidentWriter::Work::Run() {
  ::pthread_setname_np(::pthread_self(), "incidents");
  const bool is_open = Begin();
  Incident incident;
  while (Next(incident)) {
    if (is_open) {
      Append(ToJsonLine(incident, job));
    }
  }
}

bool IncidentWriter::Work::Begin() {
  Result<UniqueFd> opened = open(directory, job.id);
  if (!opened.ok()) {
    WarnOnce(opened.status().message());
    return false;
  }
  record = std::move(opened).value();
  Append(ToJsonLine(job));
  spdlog::info("job {}: incidents are kept in {}/{}; muster why {} tells them",
               job.id,
               directory,
               job.id,
               job.id);
  RemoveOldRecords(directory);
  return true;
}

// False at the end: Finish was called, and the queue is empty or to be dropped.
bool IncidentWriter::Work::Next(Incident& incident) {
  const MutexLock lock(mutex);
  while (queue.empty() && !finishing) {
    changed.Wait(mutex);
  }
  if (queue.empty() || given_up) {
    if (dropped) {
      WarnOnce("they came faster than the disk takes them");
    }
    ended = true;
    changed.NotifyAll();
    return false;
  }
  incident = std::move(queue.front());
  queue.pop_front();
  return true;
}

void IncidentWriter::Work::Append(const std::string& line) {
  const std::string text = line + "\n";
  const ssize_t size = ::write(record.get(), text.data(), text.size());
  if (size != static_cast<ssize_t>(text.size())) {
    WarnOnce(size < 0 ? strerror(errno) : "the disk is full");
  }
}

void IncidentWriter::Work::WarnOnce(const std::string& why) {
  if (!std::exchange(warned, true)) {
    spdlog::warn("incidents are not kept, or not all of them: {} (--incident-dir says where)", why);
  }
}

}  // namespace muster::launcher
