#include "launcher/agent/segment_maker.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

namespace muster::launcher {
namespace {

#ifndef MADV_POPULATE_WRITE
constexpr int kPopulateWrite = 23;  // Linux 5.14; Debian 12's headers are older.
#else
constexpr int kPopulateWrite = MADV_POPULATE_WRITE;
#endif

// Between two looks at whether the spare is wanted now.
constexpr size_t kPopulateStep = 1u << 20;

Status Failure(const std::string& what) {
  return Status::Failed(what + ": " + strerror(errno));
}

// Of the machine, in bytes; what cannot be read is taken for plenty.
size_t AvailableMemory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  size_t kilobytes = 0;
  while (file >> name) {
    if (name == "MemAvailable:" && file >> kilobytes) {
      return kilobytes << 10;
    }
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::numeric_limits<size_t>::max();
}

// Best effort: a kernel that does not know the call leaves the work to the workers.
void Populate(int fd, size_t bytes, const std::atomic<bool>& hurry) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    return;
  }
  for (size_t at = 0; at < bytes && !hurry; at += kPopulateStep) {
    if (::madvise(static_cast<char*>(memory) + at,
                  std::min(kPopulateStep, bytes - at),
                  kPopulateWrite) != 0) {
      break;
    }
  }
  ::munmap(memory, bytes);
}

}  // namespace

Result<UniqueFd> MakeSegment(size_t bytes) {
  // Where there is no memory left the kernel does not fail: it ends other processes.
  if (const size_t available = AvailableMemory(); bytes > available / 2) {
    return Status::Failed("no " + std::to_string(bytes) +
                          " bytes for the workers' shared memory: of the machine's memory only " +
                          std::to_string(available) + " are available");
  }
  UniqueFd fd(::memfd_create("muster-segment", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) {
    return Failure("memfd for the workers' shared memory");
  }
  int result = 0;
  do {
    result = ::fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0) {
    return Failure("no " + std::to_string(bytes) + " bytes for the workers' shared memory");
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Failure("sealing the workers' shared memory");
  }
  return fd;
}

SegmentMaker::SegmentMaker(Make make, Done done)
    : make_(std::move(make)), done_(std::move(done)), thread_([this] { Run(); }) {}

SegmentMaker::~SegmentMaker() {
  hurry_ = true;
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.NotifyAll();
}

void SegmentMaker::Start(size_t bytes, Urgency urgency) {
  hurry_ = false;
  {
    const MutexLock lock(mutex_);
    job_ = Job{bytes, urgency};
  }
  changed_.NotifyAll();
}

void SegmentMaker::Close(UniqueFd segment) {
  {
    const MutexLock lock(mutex_);
    closing_.push_back(std::move(segment));
  }
  changed_.NotifyAll();
}

void SegmentMaker::Run() {
  ::pthread_setname_np(::pthread_self(), "segments");
  sigset_t all;
  sigfillset(&all);  // SIGXFSZ among them: the limit is an error here, and not the agent's end.
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
  while (true) {
    std::optional<Job> job;
    std::vector<UniqueFd> closing;
    {
      const MutexLock lock(mutex_);
      while (!stop_ && !job_ && closing_.empty()) {
        changed_.Wait(mutex_);  // The owner wakes it, at the latest in the destructor.
      }
      if (stop_) {
        return;
      }
      job = std::exchange(job_, std::nullopt);
      closing.swap(closing_);
    }
    if (job) {
      done_(Perform(*job));  // Before the closing: that frees the memory, and nobody waits for it.
    }
  }
}

Result<UniqueFd> SegmentMaker::Perform(const Job& job) const {
  Result<UniqueFd> segment = make_(job.bytes);
  if (segment.ok() && job.urgency == Urgency::kSpare) {
    Populate(segment.value().get(), job.bytes, hurry_);
  }
  return segment;
}

}  // namespace muster::launcher
