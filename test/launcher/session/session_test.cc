// Driver's service and agent's session against each other, over TLS, through a link that breaks.

#include <poll.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <functional>
#include <random>
#include <thread>

#include "common/mutex.h"
#include "common/process.h"
#include "common/version.h"
#include "launcher/agent/driver_session.h"
#include "launcher/agent/output_forwarder.h"
#include "launcher/driver/rendezvous_service.h"
#include "test/launcher/session/cut_proxy.h"

namespace muster::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kHangBound{20};
const std::string kSecret = "a secret of sixteen characters or more";
const HostId kHost{"a"};

// Waits on conditions over what other threads note.
class Notes {
 public:
  void Note(const std::function<void()>& change) {
    const MutexLock lock(mutex_);
    change();
    changed_.NotifyAll();
  }
  bool Await(const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + kHangBound;
    const MutexLock lock(mutex_);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > deadline) {
        return false;
      }
      changed_.WaitFor(mutex_, milliseconds(100));
    }
    return true;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
};

// The driver's side on a loop of its own.
class DriverSide final : public AgentListener {
 public:
  explicit DriverSide(OutputWriter::Options output = {})
      : output_(std::move(output)), service_(loop_, *this, output_, kSecret) {
    REQUIRE(service_.StartRoutable({"127.0.0.1"}, {}).ok());
    REQUIRE(service_.Start().ok());
    thread_ = std::jthread([this] { loop_.Run(); });
  }
  ~DriverSide() override {
    Do([this] { service_.Shutdown(); });
    loop_.Stop();
  }
  void Do(const std::function<void()>& action) {
    bool done = false;
    loop_.Post([&] {
      action();
      notes.Note([&] { done = true; });
    });
    REQUIRE(notes.Await([&] { return done; }));
  }
  std::string address() const { return service_.routable_addresses().front(); }
  void Order(uint64_t number) {
    Do([&] {
      v1::AgentOrder order;
      order.mutable_refuse()->set_incarnation(number);
      service_.Send(kHost, order);
    });
  }
  Status StartOutput() { return output_.Start(); }
  void FinishOutput() { output_.Finish(seconds(5)); }
  void Forget() {
    Do([&] { service_.Forget(kHost); });
  }

  std::optional<std::string> OnAgentHello(const HostId&, const v1::AgentHello&) override {
    return std::nullopt;
  }
  void OnAgentAttached(const HostId& host, const v1::AgentHello& hello) override {
    notes.Note([&] {
      ++attached;
      own_address = hello.own_address().literal();
      driver_address = hello.driver_address().literal();
    });
    v1::AgentOrder order;
    order.mutable_welcome()->set_driver_grace_ms(static_cast<uint64_t>(grace.count()));
    loop_.After(welcome_after, [this, host, order] { service_.Send(host, order); });
  }
  void OnAgentResumed(const HostId&) override {
    notes.Note([&] { ++resumed; });
  }
  void OnAgentSummary(const HostId&) override {
    notes.Note([&] { ++summaries; });
  }
  void OnAgentReport(const HostId&, const v1::AgentReport& report) override {
    notes.Note([&] { reports.push_back(report.worker_warm().incarnation()); });
  }
  void OnAgentDetached(const HostId&, const std::string&) override {
    notes.Note([&] { ++detached; });
  }

  /// The test's, set before an agent comes.
  milliseconds grace{10'000};
  milliseconds welcome_after{0};
  Notes notes;
  int attached = 0;
  int resumed = 0;
  int detached = 0;
  int summaries = 0;
  std::string own_address;
  std::string driver_address;
  std::vector<uint64_t> reports;

 private:
  Loop loop_;
  OutputWriter output_;
  RendezvousService service_;
  std::jthread thread_;
};

// The agent's side on a loop of its own.
class AgentSide {
 public:
  AgentSide(std::vector<std::string> addresses,
            const std::string& secret = kSecret,
            Duration patience = seconds(20)) {
    DriverSession::Options options;
    options.addresses = std::move(addresses);
    options.secret = secret;
    options.remote = true;
    options.patience = patience;
    session_ = std::make_unique<DriverSession>(
        loop_,
        options,
        DriverSession::Callbacks{
            [this](const v1::AgentOrder& order) {
              if (order.has_welcome()) {
                session_->SetGrace(milliseconds(order.welcome().driver_grace_ms()));
              }
              notes.Note([&] {
                welcomed |= order.has_welcome();
                if (order.has_refuse()) {
                  orders.push_back(order.refuse().incarnation());
                }
              });
            },
            nullptr,
            [this](const std::shared_ptr<grpc::Channel>& channel) {
              if (output != nullptr) {
                output->Connect(channel);
              }
              notes.Note([&] { ++connected; });
            },
            [this](const Status& status) { notes.Note([&] { ended = status; }); }});
    thread_ = std::jthread([this] { loop_.Run(); });
    loop_.Post([this] {
      v1::AgentHello hello;
      hello.set_host(kHost.value);
      hello.set_protocol(kProtocolVersion);
      session_->Start(hello);
      Tick();
    });
  }
  ~AgentSide() {
    loop_.Post([this] { session_.reset(); });
    loop_.Stop();
  }
  void Report(uint64_t number) {
    loop_.Post([this, number] {
      v1::AgentReport report;
      report.mutable_worker_warm()->set_incarnation(number);
      session_->Send(report);
    });
  }
  void SetGrace(Duration grace) {
    loop_.Post([this, grace] { session_->SetGrace(grace); });
  }

  /// The test's, set before the first connection.
  OutputForwarder* output = nullptr;
  Notes notes;
  bool welcomed = false;
  int connected = 0;
  std::optional<Status> ended;
  std::vector<uint64_t> orders;

 private:
  void Tick() {
    if (session_ != nullptr) {
      session_->SendSummary({});
      loop_.After(milliseconds(50), [this] { Tick(); });
    }
  }

  Loop loop_;
  std::unique_ptr<DriverSession> session_;
  std::jthread thread_;
};

bool IsCountUpTo(const std::vector<uint64_t>& numbers, uint64_t last) {
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] != i + 1) {
      return false;
    }
  }
  return numbers.size() == last;
}

}  // namespace

TEST_CASE("a session goes on over a link that breaks again and again, and loses nothing") {
  const unsigned seed = GENERATE(1U, 2U, 3U);
  CAPTURE(seed);
  std::mt19937 random(seed);
  DriverSide driver;
  test::CutProxy proxy(driver.address());
  AgentSide agent({proxy.address()});
  REQUIRE(agent.notes.Await([&] { return agent.welcomed; }));
  uint64_t sent = 0;
  for (int round = 1; round <= 8; ++round) {
    for (unsigned i = random() % 40; i > 0; --i) {
      ++sent;
      agent.Report(sent);
      driver.Order(sent);
    }
    if (random() % 2 == 0) {  // Or in the middle of what was sent.
      REQUIRE(driver.notes.Await([&] { return driver.reports.size() == sent; }));
    }
    proxy.Cut();
    REQUIRE(driver.notes.Await([&] { return driver.resumed == round; }));
  }
  REQUIRE(driver.notes.Await([&] { return driver.reports.size() >= sent; }));
  REQUIRE(agent.notes.Await([&] { return agent.orders.size() >= sent; }));
  CHECK(IsCountUpTo(driver.reports, sent));
  CHECK(IsCountUpTo(agent.orders, sent));
  CHECK(driver.attached == 1);
  CHECK_FALSE(agent.ended);
}

// A worker's output on its way to a console that the test reads.
struct OutputPath {
  Pipe console = MakePipe().value();
  DriverSide driver{[this] {
    OutputWriter::Options options;
    options.stdout_fd = console.write.get();
    return options;
  }()};
  test::CutProxy proxy{driver.address()};
  OutputForwarder forwarder{{kSecret, "the session", kHost.value, true}};
  Pipe out = MakePipe().value();
  Pipe err = MakePipe().value();
  std::string expected;
  std::string printed;

  OutputPath() {
    REQUIRE(driver.StartOutput().ok());
    forwarder.Add({{7}, 0, 3}, std::move(out.read), std::move(err.read));
    Connect();
  }
  ~OutputPath() { driver.FinishOutput(); }
  void Connect() { forwarder.Connect(MakeRemoteDriverChannel(proxy.address(), kSecret).value()); }
  void Write(int number) {
    const std::string line = "line " + std::to_string(number) + "\n";
    REQUIRE(::write(out.write.get(), line.data(), line.size()) ==
            static_cast<ssize_t>(line.size()));
    expected += "[3]<stdout>:" + line;
  }
  void AwaitAll() {
    while (printed.size() < expected.size()) {
      pollfd readable{console.read.get(), POLLIN, 0};
      REQUIRE(::poll(&readable, 1, 20'000) == 1);
      std::array<char, 4096> bytes;
      const ssize_t got = ::read(console.read.get(), bytes.data(), bytes.size());
      REQUIRE(got > 0);
      printed.append(bytes.data(), static_cast<size_t>(got));
    }
    CHECK(printed == expected);
  }
};

TEST_CASE("lines of workers are printed once and in order, though the link breaks") {
  OutputPath path;
  for (int i = 0; i < 400; ++i) {
    path.Write(i);
    if (i % 50 == 25) {
      path.proxy.Cut();
      path.Connect();
    }
  }
  path.AwaitAll();
}

TEST_CASE("lines go on after a break that has swallowed their acknowledgements") {
  OutputPath path;
  path.Write(0);
  path.AwaitAll();
  path.proxy.SwallowAnswers(true);
  for (int i = 1; i <= 20; ++i) {
    path.Write(i);
    path.AwaitAll();  // So each is a chunk of its own, and has arrived.
  }
  path.proxy.SwallowAnswers(false);
  path.proxy.Cut();
  path.Connect();
  for (int i = 21; i <= 40; ++i) {
    path.Write(i);
  }
  path.AwaitAll();
}

TEST_CASE("a session finds another way when the link swallows everything") {
  DriverSide driver;
  test::CutProxy proxy(driver.address());
  AgentSide agent({proxy.address()});
  REQUIRE(agent.notes.Await([&] { return agent.welcomed; }));
  proxy.Swallow(true);
  agent.Report(1);
  driver.Order(1);
  const int before = proxy.connections();
  // It notices by itself: nothing has broken.
  REQUIRE(agent.notes.Await([&] { return proxy.connections() > before; }));
  proxy.Swallow(false);
  REQUIRE(driver.notes.Await([&] { return driver.resumed >= 1; }));
  REQUIRE(driver.notes.Await([&] { return IsCountUpTo(driver.reports, 1); }));
  REQUIRE(agent.notes.Await([&] { return IsCountUpTo(agent.orders, 1); }));
}

TEST_CASE("a session ends when the lease is over, though the driver still takes connections") {
  DriverSide driver;
  test::CutProxy proxy(driver.address());
  AgentSide agent({proxy.address()});
  REQUIRE(agent.notes.Await([&] { return agent.welcomed; }));
  agent.SetGrace(milliseconds(500));
  proxy.Swallow(true);
  REQUIRE(agent.notes.Await([&] { return agent.ended.has_value(); }));
  CHECK(agent.ended->code() == StatusCode::kTimeout);
  CHECK(agent.ended->message().find("--driver-grace") != std::string::npos);
}

// The driver counts from the hello, so an agent that counted from the answer would outlive its
// lease by what the answer took.
TEST_CASE("a session's lease runs from the hello, however late the answer comes") {
  DriverSide driver;
  driver.grace = milliseconds(500);
  driver.welcome_after = milliseconds(1000);
  {
    AgentSide agent({driver.address()});
    REQUIRE(agent.notes.Await([&] { return agent.ended.has_value(); }));
    CHECK(agent.ended->code() == StatusCode::kTimeout);
    CHECK(agent.welcomed);
  }
  CHECK(driver.notes.Await([&] { return driver.detached > 0; }));
  CHECK(driver.summaries == 0);
}

TEST_CASE("a session that reaches nobody says where, and why") {
  AgentSide agent({"127.0.0.1:1"}, kSecret, milliseconds(1));
  REQUIRE(agent.notes.Await([&] { return agent.ended.has_value(); }));
  CHECK(agent.ended->code() == StatusCode::kTimeout);
  CHECK(agent.ended->message().find("127.0.0.1:1: Connection refused") != std::string::npos);
}

TEST_CASE("a session that the driver has given up is refused for good") {
  DriverSide driver;
  test::CutProxy proxy(driver.address());
  AgentSide agent({proxy.address()});
  REQUIRE(agent.notes.Await([&] { return agent.welcomed; }));
  driver.Forget();
  REQUIRE(agent.notes.Await([&] { return agent.ended.has_value(); }));
  CHECK(agent.ended->code() == StatusCode::kInvalid);
}

TEST_CASE("a session takes the address that leads to its driver, among others") {
  DriverSide driver;
  test::CutProxy silent(driver.address());  // Takes connections and never says a word.
  silent.Swallow(true);
  AgentSide agent({"127.0.0.1:1", silent.address(), driver.address()});
  REQUIRE(agent.notes.Await([&] { return agent.welcomed; }));
  CHECK(driver.own_address == "127.0.0.1:0");
  CHECK(driver.driver_address == driver.address());
}

TEST_CASE("a session with another secret tells nobody its own, and says so in time") {
  DriverSide driver;
  AgentSide agent({driver.address()}, "another secret of sixteen characters", seconds(3));
  REQUIRE(agent.notes.Await([&] { return agent.ended.has_value(); }));
  CHECK(agent.ended->code() == StatusCode::kTimeout);
  CHECK(driver.attached == 0);
}

}  // namespace muster::launcher
