#include "launcher/agent/driver_link.h"

#include <catch2/catch.hpp>
#include <optional>
#include <thread>

#include "test/launcher/agent/agent_fixture.h"

namespace muster::launcher {
namespace {

// A link on a loop of its own thread; what it tells is given to the test in order.
class LinkUnderTest {
 public:
  LinkUnderTest(const std::string& literal, const std::string& secret)
      : link_(std::make_unique<DriverLink>(
            loop_,
            MakeDriverChannel(literal).value(),
            secret,
            DriverLink::Callbacks{[this](const v1::AgentOrder& order) { Note(order); },
                                  [this](const Status& status) { Note(status); }})),
        thread_([this] { loop_.Run(); }) {
    v1::AgentHello hello;
    hello.set_host("host-a");
    loop_.Post([this, hello] { link_->Start(hello); });
  }
  ~LinkUnderTest() {
    loop_.Post([this] { link_.reset(); });
    loop_.Stop();
  }

  void Send(const v1::AgentReport& report) {
    loop_.Post([this, report] { link_->Send(report); });
  }
  void Finish() {
    loop_.Post([this] { link_->Finish(); });
  }
  std::optional<Status> AwaitBroken() {
    const MutexLock lock(mutex_);
    while (!broken_ && changed_.WaitFor(mutex_, kHangBound)) {
    }
    return broken_;
  }
  bool AwaitOrders(size_t count) {
    const MutexLock lock(mutex_);
    while (orders_.size() < count && changed_.WaitFor(mutex_, kHangBound)) {
    }
    return orders_.size() >= count;
  }
  std::vector<v1::AgentOrder> orders() {
    const MutexLock lock(mutex_);
    return orders_;
  }

 private:
  void Note(const v1::AgentOrder& order) {
    const MutexLock lock(mutex_);
    orders_.push_back(order);
    changed_.NotifyAll();
  }
  void Note(const Status& status) {
    const MutexLock lock(mutex_);
    broken_ = status;
    changed_.NotifyAll();
  }

  Mutex mutex_;
  CondVar changed_;
  std::vector<v1::AgentOrder> orders_ MUSTER_GUARDED_BY(mutex_);
  std::optional<Status> broken_ MUSTER_GUARDED_BY(mutex_);
  Loop loop_;
  std::unique_ptr<DriverLink> link_;
  std::jthread thread_;
};

v1::AgentReport Exited(uint64_t incarnation) {
  v1::AgentReport report;
  report.mutable_worker_exited()->set_incarnation(incarnation);
  return report;
}

}  // namespace

TEST_CASE("driver link carries reports and orders in order") {
  FakeDriver driver("secret");
  LinkUnderTest link(driver.address(), "secret");
  for (uint64_t i = 1; i <= 1000; ++i) {
    link.Send(Exited(i));
    v1::AgentOrder order;
    order.mutable_refuse()->set_incarnation(i);
    driver.Order(order);
  }
  driver.Await(v1::AgentReport::kWorkerExited, 1000);
  const std::vector<v1::AgentReport> reports = driver.reports();
  REQUIRE(reports.size() == 1001);
  CHECK(reports[0].hello().host() == "host-a");
  REQUIRE(link.AwaitOrders(1001));
  const std::vector<v1::AgentOrder> orders = link.orders();
  CHECK(orders[0].has_welcome());
  for (uint64_t i = 1; i <= 1000; ++i) {
    CHECK(reports[i].worker_exited().incarnation() == i);
    CHECK(orders[i].refuse().incarnation() == i);
  }
}

TEST_CASE("driver link tells why the driver refused it") {
  FakeDriver driver("secret");
  LinkUnderTest link(driver.address(), "another");
  const std::optional<Status> broken = link.AwaitBroken();
  REQUIRE(broken);
  CHECK(broken->code() == StatusCode::kInvalid);  // Another try would be in vain.
  CHECK(broken->message() == "wrong secret");
}

TEST_CASE("driver link breaks at once when nobody listens") {
  LinkUnderTest link("127.0.0.1:1", "secret");
  CHECK(link.AwaitBroken());
}

TEST_CASE("driver link delivers all reports before its end") {
  FakeDriver driver("secret");
  LinkUnderTest link(driver.address(), "secret");
  for (uint64_t i = 1; i <= 100; ++i) {
    link.Send(Exited(i));
  }
  link.Finish();
  const std::optional<Status> broken = link.AwaitBroken();
  REQUIRE(broken);
  CHECK(broken->ok());
  CHECK(driver.reports().size() == 101);
}

TEST_CASE("driver link needs an address") {
  CHECK(MakeDriverChannel("").status().code() == StatusCode::kInvalid);
}

}  // namespace muster::launcher
