#include "bench/fake_agent.h"

#include <unistd.h>

#include <chrono>
#include <utility>

#include "common/secret.h"
#include "common/version.h"

namespace muster::bench {
namespace {

constexpr Duration kSummaryInterval = std::chrono::milliseconds(200);
constexpr size_t kSessionBytes = 16;
// Workers claim to listen there; nobody connects.
constexpr const char* kWorkerAddress = "127.0.0.1:40000";

}  // namespace

FakeAgent::FakeAgent(Loop& loop, FakeAgentOptions options, Callbacks callbacks)
    : loop_(loop),
      options_(std::move(options)),
      callbacks_(std::move(callbacks)),
      host_(kWorkerAddress) {}

FakeAgent::~FakeAgent() {
  loop_.Cancel(timer_);
}

Status FakeAgent::Start() {
  Result<std::shared_ptr<grpc::Channel>> channel =
      launcher::MakeRemoteDriverChannel(options_.driver, options_.secret);
  if (!channel.ok()) {
    return channel.status();
  }
  link_ = std::make_unique<launcher::DriverLink>(
      loop_,
      std::move(channel).value(),
      options_.secret,
      launcher::DriverLink::Callbacks{[this](const v1::AgentOrder& order) { OnOrder(order); },
                                      [this](const Status& status) { callbacks_.broken(status); }});
  v1::AgentHello hello;
  hello.set_host(options_.host);
  hello.set_protocol(kProtocolVersion);
  hello.set_pid(static_cast<uint64_t>(::getpid()));
  hello.set_boot_id(options_.host);
  hello.set_session(RandomHex(kSessionBytes));
  hello.set_slots(options_.slots);
  hello.mutable_own_address()->set_literal("127.0.0.1:0");
  hello.mutable_driver_address()->set_literal(options_.driver);
  link_->Start(hello);
  timer_ = loop_.After(kSummaryInterval, [this] { Tick(); });
  return Status::Ok();
}

void FakeAgent::OnOrder(const v1::AgentOrder& order) {
  if (order.has_summary_ack()) {
    acknowledged_ = order.summary_ack().reports_received();
    if (!reports_.Acknowledge(acknowledged_)) {
      callbacks_.broken(Status::Failed("the driver has reports that never were"));
      return;
    }
    callbacks_.changed();
    return;
  }
  if (orders_.Judge(order.sequence()) != launcher::ReplayFilter::Verdict::kNew) {
    callbacks_.broken(Status::Failed("an order is missing or comes twice"));
    return;
  }
  orders_.Take();
  ++traffic_.orders;
  traffic_.bytes += order.ByteSizeLong();
  if (order.has_form_world()) {
    told_at_ = loop_.Now();
  } else if (order.has_notify_pending()) {
    pending_at_ = loop_.Now();
  }
  Send(host_.Perform(order));
  // A real one says so by the next tick; here the answer tells that the driver has all reports.
  if (order.has_form_world()) {
    SendSummary();
  }
  if (host_.stopped()) {
    link_->Finish();
  }
  callbacks_.changed();
}

void FakeAgent::Send(FakeHost::Reports reports) {
  for (v1::AgentReport& report : reports) {
    link_->Send(reports_.Push(std::move(report)));
  }
}

void FakeAgent::SendSummary() {
  v1::AgentReport report;
  report.mutable_summary()->set_sequence(++summaries_);
  report.mutable_summary()->set_workers_alive(static_cast<uint32_t>(host_.members().size()));
  report.mutable_summary()->set_orders_received(orders_.received());
  link_->Send(std::move(report));
}

void FakeAgent::Tick() {
  if (orders_.received() > 0) {  // It has been welcomed.
    SendSummary();
  }
  timer_ = loop_.After(kSummaryInterval, [this] { Tick(); });
}

}  // namespace muster::bench
