#include "launcher/agent/driver_link.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/client_callback.h>

#include <deque>
#include <future>
#include <utility>

#include "launcher/security/credentials.h"
#include "launcher/session/metadata.h"

namespace muster::launcher {
namespace {

constexpr int kFirstBackoffMilliseconds = 50;
constexpr int kConnectMilliseconds = 20000;
constexpr int kRemoteConnectMilliseconds = 2000;
constexpr int kMessageBytesMax = 64 << 20;  // Welcome carries the whole environment.

Result<std::string> Target(const std::string& literal) {
  if (literal.empty()) {
    return Status::Invalid("no address of the driver was given");
  }
  if (literal.starts_with("unix:")) {
    return literal;
  }
  return (literal.starts_with('[') ? "ipv6:" : "ipv4:") + literal;
}

grpc::ChannelArguments Arguments(int connect_milliseconds) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstBackoffMilliseconds);
  // Despite its name this bounds one attempt to connect: a busy driver answers late.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, connect_milliseconds);
  // A new channel begins anew, whatever an earlier one to the same address has met.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetServiceConfigJSON("{}");
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetMaxReceiveMessageSize(kMessageBytesMax);
  return arguments;
}

// What no further try can change.
bool IsRefusal(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::UNAUTHENTICATED:
    case grpc::StatusCode::PERMISSION_DENIED:
    case grpc::StatusCode::NOT_FOUND:
    case grpc::StatusCode::FAILED_PRECONDITION:
      return true;
    default:
      return false;
  }
}

}  // namespace

Result<std::shared_ptr<grpc::Channel>> MakeDriverChannel(const std::string& literal) {
  const Result<std::string> target = Target(literal);
  if (!target.ok()) {
    return target.status();
  }
  return grpc::CreateCustomChannel(
      target.value(), grpc::InsecureChannelCredentials(), Arguments(kConnectMilliseconds));
}

Result<std::shared_ptr<grpc::Channel>> MakeRemoteDriverChannel(const std::string& literal,
                                                               const std::string& secret) {
  const Result<std::string> target = Target(literal);
  if (!target.ok()) {
    return target.status();
  }
  const Result<std::shared_ptr<grpc::ChannelCredentials>> credentials =
      MakeChannelCredentials(secret);
  if (!credentials.ok()) {
    return credentials.status();
  }
  grpc::ChannelArguments arguments = Arguments(kRemoteConnectMilliseconds);
  ExpectDriver(arguments);
  return grpc::CreateCustomChannel(target.value(), credentials.value(), arguments);
}

// gRPC calls the reactor on its own threads; each call only posts. The hold keeps OnDone from
// coming while the loop may still start a write or read.
class DriverLink::Stream final : public grpc::ClientBidiReactor<v1::AgentReport, v1::AgentOrder> {
 public:
  Stream(Loop& loop,
         std::shared_ptr<grpc::Channel> channel,
         const std::string& secret,
         Callbacks callbacks)
      : loop_(loop),
        callbacks_(std::move(callbacks)),
        stub_(v1::Agents::NewStub(std::move(channel))) {
    context_.AddMetadata(kSecretKey, secret);
    context_.set_wait_for_ready(false);
  }

  void Start(const v1::AgentHello& hello) {
    started_ = true;
    stub_->async()->Attach(&context_, this);
    AddHold();
    v1::AgentReport report;
    *report.mutable_hello() = hello;
    Send(std::move(report));
    StartRead(&order_);
    StartCall();
  }

  void Send(v1::AgentReport report) {
    if (broken_ || finishing_) {
      return;
    }
    if (report.has_summary()) {
      std::erase_if(queue_, [](const v1::AgentReport& old) { return old.has_summary(); });
    }
    queue_.push_back(std::move(report));
    WriteNext();
  }

  void Finish() {
    finishing_ = true;
    WriteNext();
  }

  // Cancels and waits for gRPC to let go; the peer has no part in that.
  void Stop() {
    if (!started_) {
      return;
    }
    stopping_ = true;
    context_.TryCancel();
    ReleaseHold();
    done_->get_future().wait();
  }

  void OnWriteDone(bool ok) override {
    loop_.Post([this, alive = std::weak_ptr<bool>(alive_), ok] {
      if (!alive.expired()) {
        Written(ok);
      }
    });
  }

  void OnReadDone(bool ok) override {
    loop_.Post([this, alive = std::weak_ptr<bool>(alive_), ok] {
      if (!alive.expired()) {
        Read(ok);
      }
    });
  }

  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<std::promise<void>> done = done_;
    loop_.Post([this, alive = std::weak_ptr<bool>(alive_), status] {
      if (!alive.expired()) {
        Done(status);
      }
    });
    done->set_value();  // From here on this object may be gone.
  }

 private:
  void WriteNext() {
    if (writing_ || broken_ || closed_) {
      return;
    }
    if (!queue_.empty()) {
      writing_ = true;
      in_flight_ = std::move(queue_.front());
      queue_.pop_front();
      StartWrite(&in_flight_);
    } else if (finishing_) {
      closed_ = true;
      StartWritesDone();
    }
  }

  void Written(bool ok) {
    writing_ = false;
    if (ok) {
      WriteNext();
    } else {
      Break("writing to the driver failed");
    }
  }

  // The next order is read when this one is done with: a driver that floods an agent is slowed.
  void Read(bool ok) {
    if (!ok) {
      Break("");
      return;
    }
    if (broken_) {
      return;
    }
    callbacks_.order(order_);
    if (!broken_ && !stopping_) {
      StartRead(&order_);
    }
  }

  // Lets OnDone come, which brings the reason.
  void Break(const std::string& reason) {
    if (broken_) {
      return;
    }
    broken_ = true;
    reason_ = reason;
    queue_.clear();
    if (!reason.empty()) {
      context_.TryCancel();
    }
    ReleaseHold();
  }

  void Done(const grpc::Status& status) {
    broken_ = true;
    const std::string reason = reason_.empty() ? status.error_message() : reason_;
    callbacks_.broken(status.ok()
                          ? Status::Ok()
                          : Status(IsRefusal(status.error_code()) ? StatusCode::kInvalid
                                                                  : StatusCode::kUnavailable,
                                   reason.empty() ? "the stream to the driver broke" : reason));
  }

  void ReleaseHold() {
    if (!std::exchange(released_, true)) {
      RemoveHold();
    }
  }

  Loop& loop_;
  Callbacks callbacks_;
  std::unique_ptr<v1::Agents::Stub> stub_;
  grpc::ClientContext context_;
  // shared_ptr: closures that outlive this object in the loop's queue see that it is gone.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  v1::AgentOrder order_;
  v1::AgentReport in_flight_;
  std::deque<v1::AgentReport> queue_;
  std::string reason_;
  bool started_ = false;
  bool writing_ = false;
  bool finishing_ = false;
  bool closed_ = false;  // StartWritesDone was called.
  bool broken_ = false;
  bool stopping_ = false;
  bool released_ = false;
  // shared_ptr: setting it must not outlive it.
  std::shared_ptr<std::promise<void>> done_ = std::make_shared<std::promise<void>>();
};

DriverLink::DriverLink(Loop& loop,
                       std::shared_ptr<grpc::Channel> channel,
                       const std::string& secret,
                       Callbacks callbacks)
    : stream_(std::make_unique<Stream>(loop, std::move(channel), secret, std::move(callbacks))) {}

DriverLink::~DriverLink() {
  stream_->Stop();
}

void DriverLink::Start(const v1::AgentHello& hello) {
  stream_->Start(hello);
}
void DriverLink::Send(v1::AgentReport report) {
  stream_->Send(std::move(report));
}
void DriverLink::Finish() {
  stream_->Finish();
}

}  // namespace muster::launcher
