#include "discovery/discovery_poller.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <functional>
#include <vector>

namespace muster::discovery {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

// What a fake source does at each poll is a function of the number of the poll.
class FakeSource final : public HostSource {
 public:
  using Answer = std::function<Result<HostList>(int poll)>;
  explicit FakeSource(Answer answer) : answer_(std::move(answer)) {}

  Result<HostList> Poll() override {
    MUSTER_CHECK(++inside_ == 1, "two polls at once");
    Result<HostList> result = answer_(polls_++);
    --inside_;
    return result;
  }
  void Cancel() override {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    changed_.notify_all();
  }
  void WaitForCancel() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return cancelled_; });
  }

 private:
  const Answer answer_;
  int polls_ = 0;
  std::atomic<int> inside_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool cancelled_ = false;
};

// Collects results, and lets the test wait for a number of them.
class Results {
 public:
  DiscoveryPoller::Callback Callback() {
    return [this](Result<HostList> result) {
      const std::lock_guard lock(mutex_);
      all_.push_back(std::move(result));
      changed_.notify_all();
    };
  }
  std::vector<Result<HostList>> WaitFor(size_t count) {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, seconds(30), [&] { return all_.size() >= count; }));
    return all_;
  }
  size_t count() {
    const std::lock_guard lock(mutex_);
    return all_.size();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Result<HostList>> all_;
};

TEST_CASE("poller goes on after a failed poll and hands on every result in order") {
  Results results;
  FakeSource source([](int poll) -> Result<HostList> {
    if (poll == 1) {
      return Status::Failed("bad poll");
    }
    return HostList{{{HostId{"h"}, static_cast<uint32_t>(poll)}}, {}};
  });
  DiscoveryPoller poller(source, Duration::zero(), results.Callback());
  poller.Start();
  const auto seen = results.WaitFor(4);
  poller.Stop();
  CHECK(seen[0].value().hosts[0].slots == 0);
  CHECK(seen[1].status().message() == "bad poll");
  CHECK(seen[2].value().hosts[0].slots == 2);
  CHECK(seen[3].value().hosts[0].slots == 3);
}

TEST_CASE("poller shows a warning once, and a new one again") {
  Results results;
  FakeSource source([](int poll) -> Result<HostList> {
    return HostList{{}, {poll < 2 ? "old" : "new"}};
  });
  DiscoveryPoller poller(source, Duration::zero(), results.Callback());
  poller.Start();
  const auto seen = results.WaitFor(4);
  poller.Stop();
  CHECK(seen[0].value().warnings == std::vector<std::string>{"old"});
  CHECK(seen[1].value().warnings.empty());
  CHECK(seen[2].value().warnings == std::vector<std::string>{"new"});
  CHECK(seen[3].value().warnings.empty());
}

TEST_CASE("poller does not wait out the interval to stop") {
  Results results;
  FakeSource source([](int) -> Result<HostList> { return HostList{}; });
  DiscoveryPoller poller(source, hours(1), results.Callback());
  poller.Start();
  results.WaitFor(1);
  poller.Stop();  // An hour would be killed by the limit of the test.
  poller.Stop();
  CHECK(results.count() == 1);
}

TEST_CASE("poller cancels a poll that hangs, and keeps its result to itself") {
  Results results;
  std::atomic<bool> polling = false;
  FakeSource* self = nullptr;
  FakeSource source([&](int) -> Result<HostList> {
    polling = true;
    polling.notify_all();
    self->WaitForCancel();
    return HostList{};
  });
  self = &source;
  DiscoveryPoller poller(source, Duration::zero(), results.Callback());
  poller.Start();
  polling.wait(false);
  poller.Stop();
  CHECK(results.count() == 0);
}

TEST_CASE("poller that was never started can be stopped and destroyed") {
  Results results;
  FakeSource source([](int) -> Result<HostList> { return HostList{}; });
  DiscoveryPoller poller(source, seconds(1), results.Callback());
  poller.Stop();
  CHECK(results.count() == 0);
}

}  // namespace
}  // namespace muster::discovery
