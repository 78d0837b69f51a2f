#include "launcher/agent/shared_page.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>

namespace muster::launcher {
namespace {

Status Failure(const char* what) {
  return Status::Failed(std::string(what) + ": " + strerror(errno));
}

void InitMutex(pthread_mutex_t* mutex) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

AliveState StateOf(uint32_t word) {
  if ((word & FUTEX_OWNER_DIED) != 0) {
    return AliveState::kOwnerDied;
  }
  return (word & FUTEX_TID_MASK) == 0 ? AliveState::kUnlocked : AliveState::kHeld;
}

}  // namespace

Result<std::shared_ptr<SharedPage>> SharedPage::Create() {
  UniqueFd fd(::memfd_create("muster-page", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid() || ::ftruncate(fd.get(), kWorkerPageBytes) != 0) {
    return Failure("memfd for a worker's page");
  }
  // Sealed: a worker that shrinks its page must not give its agent a SIGBUS.
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return Failure("sealing a worker's page");
  }
  void* memory = ::mmap(nullptr, kWorkerPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) {
    return Failure("mapping a worker's page");
  }
  auto* page = new (memory) WorkerPage{};
  InitMutex(&page->alive);
  return std::shared_ptr<SharedPage>(new SharedPage(std::move(fd), page));
}

SharedPage::~SharedPage() {
  ::munmap(page_, kWorkerPageBytes);
}

// glibc keeps the futex of a mutex in this member: its layout is part of the ABI, since shared
// mutexes live in files.
uint32_t* SharedPage::word() const {
  return reinterpret_cast<uint32_t*>(&page_->alive.__data.__lock);
}

AliveState SharedPage::state() const {
  return StateOf(std::atomic_ref<uint32_t>(*word()).load(std::memory_order_acquire));
}

pid_t SharedPage::owner() const {
  return static_cast<pid_t>(std::atomic_ref<uint32_t>(*word()).load(std::memory_order_relaxed) &
                            FUTEX_TID_MASK);
}

uint32_t SharedPage::PrepareWait() const {
  std::atomic_ref<uint32_t> word(*this->word());
  uint32_t seen = word.load(std::memory_order_acquire);
  while (StateOf(seen) == AliveState::kHeld) {
    const uint32_t marked = seen | FUTEX_WAITERS;
    if (seen == marked || word.compare_exchange_weak(seen, marked)) {
      return marked;
    }
  }
  return 0;
}

}  // namespace muster::launcher
