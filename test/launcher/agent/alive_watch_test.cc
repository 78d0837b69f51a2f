#include "launcher/agent/alive_watch.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <map>
#include <thread>

#include "common/mutex.h"

namespace muster::launcher {
namespace {

constexpr std::chrono::seconds kHangBound{20};

class Ended {
 public:
  AliveWatch::Ended callback() {
    return [this](uint64_t key, AliveState state) {
      const MutexLock lock(mutex_);
      ++count_[key];
      states_[key] = state;
      changed_.NotifyAll();
    };
  }
  AliveState Await(uint64_t key) {
    const MutexLock lock(mutex_);
    while (!states_.contains(key)) {
      if (!changed_.WaitFor(mutex_, kHangBound)) {
        throw std::runtime_error("the watch told nothing");
      }
    }
    return states_[key];
  }
  int count(uint64_t key) {
    const MutexLock lock(mutex_);
    return count_[key];
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::map<uint64_t, AliveState> states_;
  std::map<uint64_t, int> count_;
};

pthread_mutex_t* MutexOf(const SharedPage& page) {
  return reinterpret_cast<pthread_mutex_t*>(page.word());
}

// A process that holds the page's mutex until it is killed.
class Owner {
 public:
  explicit Owner(const SharedPage& page) {
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::pthread_mutex_lock(MutexOf(page));
      [[maybe_unused]] const ssize_t size = ::write(ready[1], "x", 1);
      while (true) {
        ::pause();
      }
    }
    char byte = 0;
    REQUIRE(::read(ready[0], &byte, 1) == 1);
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~Owner() { Kill(); }
  void Kill() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
      pid_ = 0;
    }
  }

 private:
  pid_t pid_ = 0;
};

std::shared_ptr<SharedPage> NewPage() {
  return SharedPage::Create().value();
}

}  // namespace

TEST_CASE("alive watch tells of an owner that was killed", "[watch]") {
  const bool use_futex_waitv = GENERATE(true, false);
  const auto page = NewPage();
  Owner owner(*page);
  CHECK(page->state() == AliveState::kHeld);
  Ended ended;
  AliveWatch watch(ended.callback(), use_futex_waitv);
  watch.Add(1, page);
  owner.Kill();
  CHECK(ended.Await(1) == AliveState::kOwnerDied);
  CHECK(page->state() == AliveState::kOwnerDied);
}

TEST_CASE("alive watch tells of an unlock", "[watch]") {
  const bool use_futex_waitv = GENERATE(true, false);
  const auto page = NewPage();
  ::pthread_mutex_lock(MutexOf(*page));
  Ended ended;
  AliveWatch watch(ended.callback(), use_futex_waitv);
  watch.Add(1, page);
  ::pthread_mutex_unlock(MutexOf(*page));
  CHECK(ended.Await(1) == AliveState::kUnlocked);
}

TEST_CASE("alive watch tells at once of a page that nobody holds", "[watch]") {
  Ended ended;
  AliveWatch watch(ended.callback());
  watch.Add(1, NewPage());
  CHECK(ended.Await(1) == AliveState::kUnlocked);
}

TEST_CASE("alive watch tells of an owner's death once and of the right page", "[watch]") {
  const auto first = NewPage();
  const auto second = NewPage();
  Owner one(*first);
  Owner two(*second);
  Ended ended;
  AliveWatch watch(ended.callback());
  watch.Add(1, first);
  watch.Add(2, second);
  two.Kill();
  CHECK(ended.Await(2) == AliveState::kOwnerDied);
  CHECK(ended.count(1) == 0);
  one.Kill();
  ended.Await(1);
  CHECK(ended.count(2) == 1);
}

TEST_CASE("alive watch says nothing of a removed page", "[watch]") {
  const auto removed = NewPage();
  const auto kept = NewPage();
  ::pthread_mutex_lock(MutexOf(*removed));
  ::pthread_mutex_lock(MutexOf(*kept));
  Ended ended;
  AliveWatch watch(ended.callback());
  watch.Add(1, removed);
  watch.Add(2, kept);
  watch.Remove(1);
  ::pthread_mutex_unlock(MutexOf(*removed));
  ::pthread_mutex_unlock(MutexOf(*kept));
  ended.Await(2);
  CHECK(ended.count(1) == 0);
}

TEST_CASE("alive watch watches more pages than one wait can hold", "[watch]") {
  constexpr uint64_t kPages = 300;
  std::vector<std::shared_ptr<SharedPage>> pages;
  Ended ended;
  AliveWatch watch(ended.callback());
  for (uint64_t key = 0; key < kPages; ++key) {
    pages.push_back(NewPage());
    ::pthread_mutex_lock(MutexOf(*pages.back()));
    watch.Add(key, pages.back());
  }
  for (const auto& page : pages) {
    ::pthread_mutex_unlock(MutexOf(*page));
  }
  for (uint64_t key = 0; key < kPages; ++key) {
    CHECK(ended.Await(key) == AliveState::kUnlocked);
    CHECK(ended.count(key) == 1);
  }
}

}  // namespace muster::launcher
