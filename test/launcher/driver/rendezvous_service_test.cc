#include "launcher/driver/rendezvous_service.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <set>
#include <thread>

#include "common/version.h"

namespace muster::launcher {
namespace {

constexpr auto kPatience = std::chrono::seconds(10);
const char* const kSecret = "the job's secret";

// Runs the service on a loop thread and passes on what it hears.
class Fixture : public AgentListener {
 public:
  Fixture() : output_({}), service_(loop_, *this, output_, kSecret) {
    REQUIRE(service_.Start().ok());
    thread_ = std::thread([this] { loop_.Run(); });
  }
  ~Fixture() override {
    loop_.Post([this] { service_.Shutdown(); });
    loop_.Stop();
    thread_.join();
  }

  std::optional<std::string> OnAgentHello(const HostId& host, const v1::AgentHello&) override {
    return host.value == "stranger" || attached_.contains(host)
               ? std::optional<std::string>("no part in the job")
               : std::nullopt;
  }
  void OnAgentAttached(const HostId& host, const v1::AgentHello&) override {
    attached_.insert(host);
    v1::AgentOrder order;
    order.mutable_welcome()->add_argv("train");
    service_.Send(host, order);
  }
  void OnAgentResumed(const HostId&) override { ++resumed_; }
  void OnAgentSummary(const HostId&) override {}
  void OnAgentReport(const HostId& host, const v1::AgentReport& report) override {
    reported_.set_value({host.value, report.worker_warm().incarnation()});
  }
  void OnAgentDetached(const HostId& host, const std::string&) override {
    detached_.set_value(host.value);
  }

  std::unique_ptr<v1::Agents::Stub> Stub() {
    return v1::Agents::NewStub(
        grpc::CreateChannel(service_.address(), grpc::InsecureChannelCredentials()));
  }
  std::future<std::pair<std::string, uint64_t>> reported() { return reported_.get_future(); }
  std::future<std::string> detached() { return detached_.get_future(); }

 private:
  Loop loop_;
  OutputWriter output_;
  RendezvousService service_;
  std::thread thread_;
  std::set<HostId> attached_;
  std::atomic<int> resumed_ = 0;
  std::promise<std::pair<std::string, uint64_t>> reported_;
  std::promise<std::string> detached_;
};

struct Call {
  Call(v1::Agents::Stub& stub, const std::string& secret) {
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    if (!secret.empty()) {
      context.AddMetadata("muster-secret", secret);
    }
    stream = stub.Attach(&context);
  }
  void Hello(const std::string& host,
             uint32_t protocol = kProtocolVersion,
             uint32_t slots_offered = 0) {
    v1::AgentReport report;
    report.mutable_hello()->set_slots(slots_offered);
    report.mutable_hello()->set_session(std::to_string(++sessions));
    report.mutable_hello()->set_host(host);
    report.mutable_hello()->set_protocol(protocol);
    stream->Write(report);
  }
  static inline int sessions = 0;  // Each call is another agent's.
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<v1::AgentReport, v1::AgentOrder>> stream;
};

TEST_CASE("the driver's service refuses a caller without the secret") {
  Fixture fixture;
  auto stub = fixture.Stub();
  for (const std::string secret : {"", "the job's secre", "the job's secret!"}) {
    Call call(*stub, secret);
    call.Hello("a");
    v1::AgentOrder order;
    CHECK_FALSE(call.stream->Read(&order));
    CHECK(call.stream->Finish().error_code() == grpc::StatusCode::UNAUTHENTICATED);
  }
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  auto output = stub->ForwardOutput(&context);
  CHECK(output->Finish().error_code() == grpc::StatusCode::UNAUTHENTICATED);
}

TEST_CASE("the driver's service passes reports on and notices the end of a stream") {
  Fixture fixture;
  auto reported = fixture.reported();
  auto detached = fixture.detached();
  auto stub = fixture.Stub();
  {
    Call call(*stub, kSecret);
    call.Hello("a");
    v1::AgentOrder order;
    REQUIRE(call.stream->Read(&order));
    CHECK(order.welcome().argv(0) == "train");
    v1::AgentReport report;
    report.mutable_worker_warm()->set_incarnation(12);
    report.set_sequence(1);
    REQUIRE(call.stream->Write(report));
    REQUIRE(reported.wait_for(kPatience) == std::future_status::ready);
    CHECK(reported.get() == std::pair<std::string, uint64_t>("a", 12));
    call.context.TryCancel();
    call.stream->Finish();
  }
  REQUIRE(detached.wait_for(kPatience) == std::future_status::ready);
  CHECK(detached.get() == "a");
}

TEST_CASE("the driver's service refuses a second agent of a host, a stranger, another protocol") {
  Fixture fixture;
  auto stub = fixture.Stub();
  Call first(*stub, kSecret);
  first.Hello("a");
  v1::AgentOrder order;
  REQUIRE(first.stream->Read(&order));

  Call second(*stub, kSecret);
  second.Hello("a");
  CHECK_FALSE(second.stream->Read(&order));
  CHECK(second.stream->Finish().error_code() == grpc::StatusCode::FAILED_PRECONDITION);

  Call stranger(*stub, kSecret);
  stranger.Hello("stranger");
  CHECK_FALSE(stranger.stream->Read(&order));
  CHECK(stranger.stream->Finish().error_code() == grpc::StatusCode::FAILED_PRECONDITION);

  // It dialled in, so it may try again: the earlier agent of its host may be on its way out.
  Call later(*stub, kSecret);
  later.Hello("a", kProtocolVersion, 2);
  CHECK_FALSE(later.stream->Read(&order));
  CHECK(later.stream->Finish().error_code() == grpc::StatusCode::ALREADY_EXISTS);

  Call old(*stub, kSecret);
  old.Hello("b", kProtocolVersion + 1);
  CHECK_FALSE(old.stream->Read(&order));
  CHECK(old.stream->Finish().error_code() == grpc::StatusCode::FAILED_PRECONDITION);

  first.context.TryCancel();
  first.stream->Finish();
}

TEST_CASE("the driver's service takes no agent whose host cannot be one") {
  Fixture fixture;
  auto stub = fixture.Stub();
  const std::string long_name(300, 'a');
  for (const std::string name :
       {"", "-oProxyCommand=x", "a/../b", "a\nb", "a b", long_name.c_str()}) {
    CAPTURE(name);
    Call call(*stub, kSecret);
    call.Hello(name, kProtocolVersion, 1);
    v1::AgentOrder order;
    CHECK_FALSE(call.stream->Read(&order));
    CHECK(call.stream->Finish().error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  }
  Call greedy(*stub, kSecret);
  greedy.Hello("a", kProtocolVersion, 4'000'000'000);  // The driver looks at each.
  v1::AgentOrder order;
  CHECK_FALSE(greedy.stream->Read(&order));
  CHECK(greedy.stream->Finish().error_code() == grpc::StatusCode::FAILED_PRECONDITION);

  Call literal(*stub, kSecret);
  literal.Hello("fd00::1", kProtocolVersion, 2);
  REQUIRE(literal.stream->Read(&order));
  literal.context.TryCancel();
  literal.stream->Finish();
}

}  // namespace
}  // namespace muster::launcher
