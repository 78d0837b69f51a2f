#include "launcher/driver/rendezvous_service.h"

#include <chrono>
#include <utility>

#include "common/address.h"
#include "common/secret.h"
#include "common/version.h"
#include "discovery/host_list.h"
#include "launcher/security/credentials.h"
#include "launcher/session/metadata.h"

namespace muster::launcher {
namespace {

using std::chrono::milliseconds;

constexpr int kMessageBytesMax = 4 << 20;
constexpr int kMetadataBytesMax = 8 << 10;
// TLS and HTTP/2 together; after it a client that says nothing costs nothing any more.
constexpr int kHandshakeMilliseconds = 2000;
// A connection without a call; calls of agents last as long as the job.
constexpr int kIdleMilliseconds = 5000;
constexpr int kStreamsPerConnectionMax = 16;
constexpr size_t kOutputSessionsMax = 4096;

std::string MetadataOf(const grpc::CallbackServerContext& context, const char* key) {
  const auto it = context.client_metadata().find(key);
  return it == context.client_metadata().end() ? ""
                                               : std::string(it->second.data(), it->second.size());
}

bool Authenticated(const grpc::CallbackServerContext& context, const std::string& secret) {
  return EqualInConstantTime(MetadataOf(context, kSecretKey), secret);
}

grpc::Status Unauthenticated() {
  return {grpc::StatusCode::UNAUTHENTICATED, "the job's secret is missing or wrong"};
}

/// Refuses a call at once.
class RefusedAttach final : public grpc::ServerBidiReactor<v1::AgentReport, v1::AgentOrder> {
 public:
  RefusedAttach() { Finish(Unauthenticated()); }
  void OnDone() override { delete this; }
};

std::string BoundAddress(int listener) {
  SocketAddress address;
  address.size = sizeof address.storage;
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&address.storage), &address.size);
  return ToLiteral(address);
}

void SetLimits(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(kMessageBytesMax);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMetadataBytesMax);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMilliseconds);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMilliseconds);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsPerConnectionMax);
}

}  // namespace

class RendezvousService::Service final : public v1::Agents::CallbackService {
 public:
  explicit Service(RendezvousService& owner) : owner_(owner) {}

  grpc::ServerBidiReactor<v1::AgentReport, v1::AgentOrder>* Attach(
      grpc::CallbackServerContext* context) override {
    if (!Authenticated(*context, owner_.secret_)) {
      return new RefusedAttach;
    }
    // Not `this`: what is posted outlives the servers.
    return AttachStream::Begin(
        owner_.loop_,
        {[&owner = owner_](const std::shared_ptr<AttachStream>& stream,
                           const v1::AgentReport& report) { owner.HandleReport(stream, report); },
         [&owner = owner_](const std::shared_ptr<AttachStream>& stream) {
           owner.HandleClosed(stream);
         }});
  }

  grpc::ServerBidiReactor<v1::OutputChunk, v1::OutputAck>* ForwardOutput(
      grpc::CallbackServerContext* context) override {
    if (!Authenticated(*context, owner_.secret_)) {
      return new OutputStream(owner_.output_, Unauthenticated());
    }
    std::shared_ptr<OutputSession> session = owner_.OutputOf(MetadataOf(*context, kSessionKey));
    if (session == nullptr) {
      return new OutputStream(owner_.output_,
                              {grpc::StatusCode::RESOURCE_EXHAUSTED, "too many sessions"});
    }
    return new OutputStream(owner_.output_, std::move(session));
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

Status RendezvousService::Start(PortRange ports, AddressFamily family) {
  open_ = true;
  Status failed;
  for (const std::string literal : {"127.0.0.1", "::1"}) {
    if (!Matches(family, FamilyOf(literal))) {
      continue;
    }
    Result<std::string> address = Listen(literal, ports, grpc::InsecureServerCredentials());
    if (address.ok()) {
      address_ = std::move(address).value();
      return Status::Ok();
    }
    failed = failed.ok() ? address.status() : failed;
  }
  return failed;
}

Status RendezvousService::StartRoutable(const std::vector<std::string>& literals, PortRange ports) {
  const Result<std::shared_ptr<grpc::ServerCredentials>> credentials =
      MakeServerCredentials(secret_);
  if (!credentials.ok()) {
    return credentials.status();
  }
  Status failed = Status::Failed("this machine has no address at which others could reach it");
  for (const std::string& literal : literals) {
    Result<std::string> address = Listen(literal, ports, credentials.value());
    if (address.ok()) {
      routable_.push_back(std::move(address).value());
    } else {
      failed = address.status();
    }
  }
  return routable_.empty() ? failed : Status::Ok();
}

Result<std::string> RendezvousService::Listen(
    const std::string& literal,
    PortRange ports,
    const std::shared_ptr<grpc::ServerCredentials>& credentials) {
  Result<UniqueFd> listener = ListenInRange(literal, ports);
  if (!listener.ok()) {
    return Status::Failed("the driver cannot listen at " + literal +
                          (ports.any() ? "" : " on port " + ToText(ports)) + ": " +
                          listener.status().message());
  }
  grpc::ServerBuilder builder;
  SetLimits(builder);
  auto service = std::make_unique<Service>(*this);
  builder.RegisterService(service.get());
  std::unique_ptr<GrpcListener::Acceptor> acceptor =
      builder.experimental().AddExternalConnectionAcceptor(
          grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    return Status::Failed("the driver cannot serve at " + literal);
  }
  const std::string address = BoundAddress(listener.value().get());
  servers_.push_back(
      {std::move(service),
       std::move(server),
       std::make_unique<GrpcListener>(loop_, std::move(listener).value(), std::move(acceptor))});
  return address;
}

void RendezvousService::Shutdown() {
  open_ = false;
  for (Server& server : servers_) {
    server.server->Shutdown(std::chrono::system_clock::now() + milliseconds(100));
  }
  servers_.clear();
  sessions_.clear();
}

void RendezvousService::Send(const HostId& host, v1::AgentOrder order) {
  const auto it = sessions_.find(host);
  if (it == sessions_.end()) {
    return;
  }
  Session& session = it->second;
  if (session.orders.size() >= kQueuedOrdersMax) {
    Forget(host);  // What it would still be told could not be kept.
    loop_.Post([this, host] {
      if (open_) {
        listener_.OnAgentDetached(host, "its agent does not take its orders");
      }
    });
    return;
  }
  const v1::AgentOrder& numbered = session.orders.Push(std::move(order));
  if (session.stream != nullptr) {
    session.stream->Send(numbered);
  }
}

void RendezvousService::Forget(const HostId& host) {
  const auto it = sessions_.find(host);
  if (it == sessions_.end()) {
    return;
  }
  {
    const MutexLock lock(mutex_);
    outputs_.erase(it->second.id);
  }
  if (it->second.stream != nullptr) {
    it->second.stream->greeted = false;
    it->second.stream->Close({grpc::StatusCode::NOT_FOUND, "the driver has given this host up"});
  }
  sessions_.erase(it);
}

std::shared_ptr<OutputSession> RendezvousService::OutputOf(const std::string& session) {
  const MutexLock lock(mutex_);
  const auto it = outputs_.find(session);
  if (it != outputs_.end()) {
    return it->second;
  }
  if (outputs_.size() >= kOutputSessionsMax) {
    return nullptr;
  }
  return outputs_[session] = std::make_shared<OutputSession>();
}

void RendezvousService::HandleReport(const std::shared_ptr<AttachStream>& stream,
                                     const v1::AgentReport& report) {
  if (!open_) {
    return;
  }
  if (report.has_hello()) {
    HandleHello(stream, report.hello());
    return;
  }
  const auto it = sessions_.find(stream->host);
  if (it == sessions_.end() || it->second.stream != stream) {
    return;  // Refused, or another stream has taken its place.
  }
  if (report.has_summary()) {
    HandleSummary(it->first, it->second, report.summary());
    return;
  }
  switch (it->second.reports.Judge(report.sequence())) {
    case ReplayFilter::Verdict::kNew:
      it->second.reports.Take();
      listener_.OnAgentReport(HostId(it->first), report);
      return;
    case ReplayFilter::Verdict::kRepeat:
      return;
    case ReplayFilter::Verdict::kGap:
      stream->Close({grpc::StatusCode::INVALID_ARGUMENT, "a report is missing"});
      return;
  }
}

void RendezvousService::HandleSummary(const HostId& host,
                                      Session& session,
                                      const v1::AgentSummary& summary) {
  if (!session.orders.Acknowledge(summary.orders_received())) {
    session.stream->Close({grpc::StatusCode::INVALID_ARGUMENT, "it has orders that never were"});
    return;
  }
  v1::AgentOrder order;
  order.mutable_summary_ack()->set_sequence(summary.sequence());
  order.mutable_summary_ack()->set_reports_received(session.reports.received());
  session.stream->Send(order);
  listener_.OnAgentSummary(HostId(host));
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
  if (!discovery::IsHost(hello.host()) || hello.slots() > discovery::kSlotsMax) {
    stream->Close({grpc::StatusCode::FAILED_PRECONDITION,
                   "a host has a name of letters, digits, '-', '_' and '.', and at most " +
                       std::to_string(discovery::kSlotsMax) + " slots"});
    return;
  }
  const HostId host{hello.host()};
  const auto it = sessions_.find(host);
  if (it != sessions_.end() && it->second.id == hello.session() && !stream->greeted) {
    Resume(it->second, stream, hello);
    return;
  }
  if (hello.resume() || stream->greeted) {
    stream->Close({grpc::StatusCode::NOT_FOUND, "the driver has given this host up"});
    return;
  }
  if (const std::optional<std::string> refusal = listener_.OnAgentHello(host, hello)) {
    // An agent that dials in may be taken later; one that the driver started itself will not be.
    stream->Close({hello.slots() > 0 ? grpc::StatusCode::ALREADY_EXISTS
                                     : grpc::StatusCode::FAILED_PRECONDITION,
                   *refusal});
    return;
  }
  Forget(host);
  Session& session = sessions_[host];
  session.id = hello.session();
  stream->host = host;
  Adopt(session, stream);
  listener_.OnAgentAttached(host, hello);
}

void RendezvousService::Adopt(Session& session, const std::shared_ptr<AttachStream>& stream) {
  stream->greeted = true;
  if (const std::shared_ptr<AttachStream> old = std::exchange(session.stream, stream)) {
    old->Close({grpc::StatusCode::ABORTED, "the session goes on over another stream"});
  }
}

void RendezvousService::Resume(Session& session,
                               const std::shared_ptr<AttachStream>& stream,
                               const v1::AgentHello& hello) {
  if (!session.orders.Acknowledge(hello.orders_received())) {
    stream->Close({grpc::StatusCode::INVALID_ARGUMENT, "it has orders that never were"});
    return;
  }
  stream->host = HostId{hello.host()};
  Adopt(session, stream);
  v1::AgentOrder resumed;
  resumed.mutable_resumed()->set_reports_received(session.reports.received());
  stream->Send(resumed);
  for (const v1::AgentOrder& order : session.orders.unacknowledged()) {
    stream->Send(order);
  }
  listener_.OnAgentResumed(HostId(stream->host));
}

void RendezvousService::HandleClosed(const std::shared_ptr<AttachStream>& stream) {
  const auto it = sessions_.find(stream->host);
  if (!open_ || it == sessions_.end() || it->second.stream != stream) {
    return;
  }
  it->second.stream = nullptr;
  listener_.OnAgentDetached(HostId(stream->host), "its stream to the driver broke");
}

}  // namespace muster::launcher
