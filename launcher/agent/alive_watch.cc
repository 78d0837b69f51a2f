#include "launcher/agent/alive_watch.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <map>
#include <thread>
#include <utility>

#include "common/mutex.h"

namespace muster::launcher {
namespace {

constexpr size_t kWordsPerWait = FUTEX_WAITV_MAX;
// One word is the group's own, by which it is told to look at its set again.
constexpr size_t kPagesPerWaitv = kWordsPerWait - 1;
// Without futex_waitv nothing can end a wait early, so the set is looked at in this rhythm.
constexpr long kPollNanoseconds = 50'000'000;

bool HaveFutexWaitv() {
  // No words at all: refused as invalid where the call exists.
  return ::syscall(SYS_futex_waitv, nullptr, 0U, 0U, nullptr, CLOCK_MONOTONIC) == -1 &&
         errno == EINVAL;
}

futex_waitv Entry(const void* word, uint32_t value, uint32_t flags) {
  futex_waitv entry{};
  entry.uaddr = reinterpret_cast<uint64_t>(word);
  entry.val = value;
  entry.flags = FUTEX_32 | flags;
  return entry;
}

}  // namespace

// One thread and the pages it waits for.
class AliveWatch::Group {
 public:
  Group(const Ended& ended, size_t capacity)
      : ended_(ended), capacity_(capacity), thread_([this] { Run(); }) {}

  ~Group() {
    stop_.store(true);
    Wake();
    thread_.join();
  }

  bool Add(uint64_t key, const std::shared_ptr<SharedPage>& page) {
    {
      const MutexLock lock(mutex_);
      if (pages_.size() >= capacity_) {
        return false;
      }
      pages_[key] = page;
    }
    Wake();
    return true;
  }

  void Remove(uint64_t key) {
    bool removed = false;
    {
      const MutexLock lock(mutex_);
      removed = pages_.erase(key) > 0;
    }
    if (removed) {
      Wake();
    }
  }

 private:
  using Pages = std::map<uint64_t, std::shared_ptr<SharedPage>>;

  void Run() {
    ::pthread_setname_np(::pthread_self(), "alive-watch");
    while (!stop_.load()) {
      // Read before the set: a change after this makes the wait below return at once.
      const uint32_t round = round_.load();
      Pages pages;
      {
        const MutexLock lock(mutex_);
        pages = pages_;
      }
      if (!TellEnded(pages)) {
        Wait(pages, round);
      }
    }
  }

  // True if a page was done with, so that the set has changed.
  bool TellEnded(const Pages& pages) {
    bool any = false;
    for (const auto& [key, page] : pages) {
      if (const AliveState state = page->state(); state != AliveState::kHeld) {
        any = true;
        {
          const MutexLock lock(mutex_);
          if (pages_.erase(key) == 0) {
            continue;
          }
        }
        ended_(key, state);
      }
    }
    return any;
  }

  void Wait(const Pages& pages, uint32_t round) {
    std::vector<futex_waitv> entries;
    entries.push_back(Entry(&round_, round, FUTEX_PRIVATE_FLAG));
    for (const auto& [key, page] : pages) {
      const uint32_t value = page->PrepareWait();
      if (value == 0) {
        return;
      }
      entries.push_back(Entry(page->word(), value, 0));
    }
    if (capacity_ > 1) {
      ::syscall(SYS_futex_waitv, entries.data(), entries.size(), 0U, nullptr, CLOCK_MONOTONIC);
      return;
    }
    const futex_waitv& last = entries.back();
    const int operation = FUTEX_WAIT | (pages.empty() ? FUTEX_PRIVATE_FLAG : 0);
    const timespec limit{0, kPollNanoseconds};
    ::syscall(SYS_futex, last.uaddr, operation, last.val, pages.empty() ? nullptr : &limit);
  }

  void Wake() {
    round_.fetch_add(1);
    ::syscall(SYS_futex, &round_, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1);
  }

  const Ended& ended_;  // The watch's, which outlives its groups.
  const size_t capacity_;
  std::atomic<uint32_t> round_{0};
  std::atomic<bool> stop_{false};
  Mutex mutex_;
  Pages pages_ MUSTER_GUARDED_BY(mutex_);
  std::jthread thread_;  // Last: it uses all the others.
};

AliveWatch::AliveWatch(Ended ended, bool use_futex_waitv)
    : ended_(std::move(ended)),
      pages_per_thread_(use_futex_waitv && HaveFutexWaitv() ? kPagesPerWaitv : 1) {}

AliveWatch::~AliveWatch() = default;

void AliveWatch::Add(uint64_t key, std::shared_ptr<SharedPage> page) {
  for (const auto& group : groups_) {
    if (group->Add(key, page)) {
      return;
    }
  }
  groups_.push_back(std::make_unique<Group>(ended_, pages_per_thread_));
  groups_.back()->Add(key, page);
}

void AliveWatch::Remove(uint64_t key) {
  for (const auto& group : groups_) {
    group->Remove(key);
  }
}

}  // namespace muster::launcher
