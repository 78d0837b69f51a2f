#include "common/loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "common/check.h"

namespace muster {
namespace {
constexpr int kEventsPerWait = 64;
}  // namespace

Loop::Loop()
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  MUSTER_CHECK(epoll_.valid() && wake_.valid(), std::string("no descriptors: ") + strerror(errno));
  Watch(wake_.get(), EPOLLIN, [this](uint32_t) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t size = ::read(wake_.get(), &count, sizeof count);
  });
}

Loop::~Loop() = default;

void Loop::Run() {
  thread_ = std::this_thread::get_id();
  std::array<epoll_event, kEventsPerWait> events{};
  while (!stop_) {
    const int count = ::epoll_wait(epoll_.get(), events.data(), kEventsPerWait, WaitMilliseconds());
    MUSTER_CHECK(count >= 0 || errno == EINTR, std::string("epoll_wait: ") + strerror(errno));
    for (int i = 0; i < count; ++i) {
      const auto it = watched_.find(static_cast<int>(events[i].data.u64 & UINT32_MAX));
      if (it == watched_.end() || it->second.number != events[i].data.u64 >> 32) {
        continue;  // Unwatched by an earlier callback of this round.
      }
      const std::shared_ptr<FdCallback> callback = it->second.callback;
      (*callback)(events[i].events);
    }
    RunTimers();
    RunPosted();
  }
  stop_ = false;
  const MutexLock lock(mutex_);
  stop_asked_ = false;
}

void Loop::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t size = ::write(wake_.get(), &one, sizeof one);
}

void Loop::Watch(int fd, uint32_t epoll_events, FdCallback callback) {
  const uint32_t number = next_watch_++;
  Control(EPOLL_CTL_ADD, fd, epoll_events, number);
  watched_[fd] = {number, std::make_shared<FdCallback>(std::move(callback))};
}

void Loop::Modify(int fd, uint32_t epoll_events) {
  const auto it = watched_.find(fd);
  MUSTER_CHECK(it != watched_.end(), "modifies a descriptor that is not watched");
  Control(EPOLL_CTL_MOD, fd, epoll_events, it->second.number);
}

void Loop::Control(int operation, int fd, uint32_t epoll_events, uint32_t number) {
  epoll_event event{};
  event.events = epoll_events;
  event.data.u64 = static_cast<uint64_t>(number) << 32 | static_cast<uint32_t>(fd);
  const int rc = ::epoll_ctl(epoll_.get(), operation, fd, &event);
  MUSTER_CHECK(rc == 0, std::string("epoll_ctl: ") + strerror(errno));
}

void Loop::Unwatch(int fd) {
  if (watched_.erase(fd) > 0) {
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  }
}

Loop::TimerId Loop::After(Duration delay, Callback callback) {
  const uint64_t id = next_timer_++;
  const Instant due = Now() + delay;
  timers_.emplace(std::pair(due, id), std::move(callback));
  timer_due_.emplace(id, due);
  return {id};
}

// Rounded up, so that a timer is never polled for in a busy loop.
int Loop::WaitMilliseconds() {
  if (timers_.empty()) {
    return -1;
  }
  const Duration left = timers_.begin()->first.first - Now();
  if (left <= Duration::zero()) {
    return 0;
  }
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(left).count());
}

}  // namespace muster
