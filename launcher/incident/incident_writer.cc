#include "launcher/incident/incident_writer.h"

#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/log.h"
#include "launcher/incident/incident_json.h"
#include "launcher/incident/record_store.h"

namespace muster::launcher {
namespace {

// A disk that hangs for so many changes of world has lost its record.
constexpr size_t kQueuedMax = 1000;

}  // namespace

IncidentWriter::~IncidentWriter() {
  Finish(Duration::zero());
}

void IncidentWriter::Start(const JobRecord& job) {
  if (directory_.empty()) {
    spdlog::info("no incidents are kept: there is no HOME, and no --incident-dir");
    return;
  }
  job_ = job;
  thread_ = std::jthread([this] { Run(); });
}

void IncidentWriter::Write(Incident incident) {
  const MutexLock lock(mutex_);
  if (!thread_.joinable()) {
    return;
  }
  if (queue_.size() >= kQueuedMax) {
    dropped_ = true;
    return;
  }
  queue_.push_back(std::move(incident));
  changed_.NotifyAll();
}

void IncidentWriter::Finish(Duration patience) {
  if (!thread_.joinable()) {
    return;
  }
  {
    const MutexLock lock(mutex_);
    finishing_ = true;
    changed_.NotifyAll();
    const SteadyClock clock;
    const Instant until = clock.Now() + patience;
    for (Instant now = clock.Now(); !ended_ && now < until; now = clock.Now()) {
      changed_.WaitFor(mutex_, until - now);
    }
    given_up_ = true;
  }
  thread_.join();
}

void IncidentWriter::Run() {
  ::pthread_setname_np(::pthread_self(), "incidents");
  const bool open = Open();
  Incident incident;
  while (Next(incident)) {
    if (open) {
      Append(ToJsonLine(incident, job_));
    }
  }
  if (dropped_) {
    WarnOnce("they came faster than the disk takes them");
  }
}

bool IncidentWriter::Open() {
  Result<UniqueFd> record = CreateRecord(directory_, job_.id);
  if (!record.ok()) {
    WarnOnce(record.status().message());
    return false;
  }
  record_ = std::move(record).value();
  Append(ToJsonLine(job_));
  spdlog::info("job {}: incidents are kept in {}/{}; muster why {} tells them",
               job_.id,
               directory_,
               job_.id,
               job_.id);
  RemoveOldRecords(directory_);
  return true;
}

// False at the end: Finish was called, and the queue is empty or to be dropped.
bool IncidentWriter::Next(Incident& incident) {
  const MutexLock lock(mutex_);
  while (queue_.empty() && !finishing_) {
    changed_.Wait(mutex_);
  }
  if (queue_.empty() || given_up_) {
    ended_ = true;
    changed_.NotifyAll();
    return false;
  }
  incident = std::move(queue_.front());
  queue_.pop_front();
  return true;
}

void IncidentWriter::Append(const std::string& line) {
  const std::string text = line + "\n";
  const ssize_t size = ::write(record_.get(), text.data(), text.size());
  if (size != static_cast<ssize_t>(text.size())) {
    WarnOnce(size < 0 ? strerror(errno) : "the disk is full");
  }
}

void IncidentWriter::WarnOnce(const std::string& why) {
  if (!std::exchange(warned_, true)) {
    spdlog::warn("incidents are not kept, or not all of them: {} (--incident-dir says where)", why);
  }
}

}  // namespace muster::launcher
