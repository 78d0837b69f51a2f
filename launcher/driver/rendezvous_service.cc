#include "launcher/driver/rendezvous_service.h"

#include <chrono>
#include <utility>

#include "common/address.h"
#include "common/secret.h"
#include "launcher/driver/attach_stream.h"
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
    return AttachStream::Begin(owner_.loop_,
                               {[&owner = owner_](const std::shared_ptr<AgentStream>& stream,
                                                  const v1::AgentReport& report) {
                                  owner.sessions_.HandleReport(stream, report);
                                },
                                [&owner = owner_](const std::shared_ptr<AgentStream>& stream) {
                                  owner.sessions_.HandleClosed(stream);
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
    : loop_(loop),
      output_(output),
      secret_(std::move(secret)),
      sessions_(loop, listener, [this](const std::string& session) { OnForgotten(session); }) {}

RendezvousService::~RendezvousService() {
  Shutdown();
}

Status RendezvousService::Start(PortRange ports, AddressFamily family) {
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
  sessions_.Open();
  const std::string address = BoundAddress(listener.value().get());
  servers_.push_back(
      {std::move(service),
       std::move(server),
       std::make_unique<GrpcListener>(loop_, std::move(listener).value(), std::move(acceptor))});
  return address;
}

void RendezvousService::Shutdown() {
  sessions_.Close();
  for (Server& server : servers_) {
    server.server->Shutdown(std::chrono::system_clock::now() + milliseconds(100));
  }
  servers_.clear();
}

void RendezvousService::OnForgotten(const std::string& session) {
  const MutexLock lock(mutex_);
  outputs_.erase(session);
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

}  // namespace muster::launcher
