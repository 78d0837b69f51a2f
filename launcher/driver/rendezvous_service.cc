#include "launcher/driver/rendezvous_service.h"

#include <chrono>
#include <deque>
#include <utility>

#include "common/log.h"
#include "common/mutex.h"
#include "common/secret.h"
#include "common/version.h"

namespace muster::launcher {
namespace {

constexpr const char* kSecretKey = "muster-secret";
constexpr int kMessageBytesMax = 4 << 20;
constexpr size_t kQueuedOrdersMax = 1 << 16;

bool Authenticated(const grpc::CallbackServerContext& context, const std::string& secret) {
  const auto& metadata = context.client_metadata();
  const auto it = metadata.find(kSecretKey);
  return it != metadata.end() &&
         EqualInConstantTime({it->second.data(), it->second.size()}, secret);
}

grpc::Status Unauthenticated() {
  return {grpc::StatusCode::UNAUTHENTICATED, "the job's secret is missing or wrong"};
}

}  // namespace

// One Attach call. gRPC runs one reaction at a time per kind (read, write); the queue is shared
// with the loop thread.
class RendezvousService::AttachStream final
    : public grpc::ServerBidiReactor<v1::AgentReport, v1::AgentOrder> {
 public:
  AttachStream(RendezvousService& service, Loop& loop) : service_(service), loop_(loop) {}

  // The call holds itself until OnDone: gRPC gives no other owner.
  void Begin(std::shared_ptr<AttachStream> self) {
    self_ = std::move(self);
    StartRead(&incoming_);
  }

  void Send(const v1::AgentOrder& order) {
    const MutexLock lock(mutex_);
    if (closed_) {
      return;
    }
    if (queue_.size() >= kQueuedOrdersMax) {
      closed_ = true;
      Finish({grpc::StatusCode::RESOURCE_EXHAUSTED, "the agent does not read its orders"});
      return;
    }
    queue_.push_back(order);
    if (queue_.size() == 1) {
      StartWrite(&queue_.front());
    }
  }

  void Close(const grpc::Status& status) {
    const MutexLock lock(mutex_);
    if (!closed_) {
      closed_ = true;
      Finish(status);
    }
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Close(grpc::Status::OK);
      return;
    }
    loop_.Post([&service = service_, self = self_, report = incoming_] {
      service.HandleReport(self, report);
    });
    StartRead(&incoming_);
  }

  void OnWriteDone(bool ok) override {
    const MutexLock lock(mutex_);
    queue_.pop_front();
    if (ok && !closed_ && !queue_.empty()) {
      StartWrite(&queue_.front());
    }
  }

  void OnCancel() override { Close(grpc::Status::CANCELLED); }

  void OnDone() override {
    std::shared_ptr<AttachStream> self = std::move(self_);
    loop_.Post([&service = service_, self] { service.HandleClosed(self); });
  }

  // Loop thread only.
  HostId host;
  bool attached = false;

 private:
  RendezvousService& service_;
  Loop& loop_;
  std::shared_ptr<AttachStream> self_;
  v1::AgentReport incoming_;
  Mutex mutex_;
  bool closed_ MUSTER_GUARDED_BY(mutex_) = false;
  std::deque<v1::AgentOrder> queue_ MUSTER_GUARDED_BY(mutex_);  // The front is being written.
};

namespace {

/// Refuses a call at once.
class RefusedAttach final : public grpc::ServerBidiReactor<v1::AgentReport, v1::AgentOrder> {
 public:
  RefusedAttach() { Finish(Unauthenticated()); }
  void OnDone() override { delete this; }
};

/// One agent's output. The next chunk is read when the writer has taken the last one, so a blocked
/// terminal blocks this stream and, through it, the workers' pipes.
class OutputStream final : public grpc::ServerReadReactor<v1::OutputChunk> {
 public:
  explicit OutputStream(OutputWriter& writer) : writer_(writer) { StartRead(&incoming_); }
  explicit OutputStream(OutputWriter& writer, const grpc::Status& refusal) : writer_(writer) {
    Finish(refusal);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Finish(grpc::Status::OK);
      return;
    }
    Offer();
  }
  void OnDone() override { delete this; }

 private:
  void Offer() {
    OutputLines lines;
    lines.incarnation = {incoming_.incarnation()};
    lines.slot = {{incoming_.host()}, incoming_.slot()};
    lines.rank = incoming_.rank();
    lines.is_stderr = incoming_.is_stderr();
    lines.lines = incoming_.lines();
    if (writer_.TryPush(std::move(lines))) {
      StartRead(&incoming_);
      return;
    }
    writer_.OnSpace([this] { Offer(); });
  }

  OutputWriter& writer_;
  v1::OutputChunk incoming_;
};

}  // namespace

class RendezvousService::Service final : public v1::Agents::CallbackService {
 public:
  explicit Service(RendezvousService& owner) : owner_(owner) {}

  grpc::ServerBidiReactor<v1::AgentReport, v1::AgentOrder>* Attach(
      grpc::CallbackServerContext* context) override {
    if (!Authenticated(*context, owner_.secret_)) {
      return new RefusedAttach;
    }
    auto stream = std::make_shared<AttachStream>(owner_, owner_.loop_);
    stream->Begin(stream);
    return stream.get();
  }

  grpc::ServerReadReactor<v1::OutputChunk>* ForwardOutput(grpc::CallbackServerContext* context,
                                                          v1::OutputEnd* /*end*/) override {
    if (!Authenticated(*context, owner_.secret_)) {
      return new OutputStream(owner_.output_, Unauthenticated());
    }
    return new OutputStream(owner_.output_);
  }

 private:
  RendezvousService& owner_;
};

RendezvousService::RendezvousService(Loop& loop,
                                     AgentListener& listener,
                                     OutputWriter& output,
                                     std::string secret)
    : loop_(loop), listener_(listener), output_(output), secret_(std::move(secret)) {}

RendezvousService::~RendezvousService() {
  Shutdown();
}

Status RendezvousService::Start() {
  service_ = std::make_unique<Service>(*this);
  for (const std::string host : {"127.0.0.1", "[::1]"}) {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(kMessageBytesMax);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddListeningPort(host + ":0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    if (server_ != nullptr && port != 0) {
      address_ = host + ":" + std::to_string(port);
      open_ = true;
      return Status::Ok();
    }
  }
  return Status::Failed("the driver cannot listen on the loopback interface");
}

void RendezvousService::Shutdown() {
  open_ = false;
  if (server_ != nullptr) {
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
    server_.reset();
  }
  streams_.clear();
}

void RendezvousService::Send(const HostId& host, const v1::AgentOrder& order) {
  const auto it = streams_.find(host);
  if (it != streams_.end()) {
    it->second->Send(order);
  }
}

void RendezvousService::HandleReport(const std::shared_ptr<AttachStream>& stream,
                                     const v1::AgentReport& report) {
  if (!open_) {
    return;
  }
  if (report.has_hello()) {
    HandleHello(stream, report.hello());
  } else if (stream->attached) {
    listener_.OnAgentReport(stream->host, report);
  }
}

void RendezvousService::HandleHello(const std::shared_ptr<AttachStream>& stream,
                                    const v1::AgentHello& hello) {
  if (hello.protocol() != kProtocolVersion) {
    stream->Close({grpc::StatusCode::FAILED_PRECONDITION,
                   "the driver speaks protocol " + std::to_string(kProtocolVersion) +
                       ", the agent " + std::to_string(hello.protocol()) +
                       "; install the same version of Muster on every host"});
    return;
  }
  const HostId host{hello.host()};
  if (stream->attached || streams_.contains(host)) {
    stream->Close({grpc::StatusCode::ALREADY_EXISTS, "this host has an agent"});
    return;
  }
  stream->host = host;
  stream->attached = true;
  streams_[host] = stream;
  if (!listener_.OnAgentAttached(host, hello)) {
    streams_.erase(host);
    stream->attached = false;
    stream->Close({grpc::StatusCode::NOT_FOUND, "this host has no part in the job"});
  }
}

void RendezvousService::HandleClosed(const std::shared_ptr<AttachStream>& stream) {
  if (!open_ || !stream->attached) {
    return;
  }
  stream->attached = false;
  streams_.erase(stream->host);
  listener_.OnAgentDetached(stream->host, "its stream to the driver broke");
}

}  // namespace muster::launcher
