#include "launcher/security/credentials.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <catch2/catch.hpp>
#include <chrono>

#include "launcher/security/job_certificate.h"
#include "muster/v1/agents.grpc.pb.h"
#include "test/launcher/security/tls_peer.h"

namespace muster::launcher {
namespace {

const std::string kSecret = "0123456789abcdef0123456789abcdef";
constexpr std::chrono::seconds kHangBound{10};
constexpr std::chrono::seconds kPatience{1};  // For what must fail: gRPC tries again and again.

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address,
                                         std::shared_ptr<grpc::ChannelCredentials> credentials) {
  grpc::ChannelArguments arguments;
  ExpectDriver(arguments);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, std::move(credentials), arguments);
}

std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address, const std::string& secret) {
  return ChannelTo(address, MakeChannelCredentials(secret).value());
}

// A driver that counts the calls that reach it, and ends each at once.
class Driver final : public v1::Agents::Service {
 public:
  explicit Driver(const std::string& secret) : Driver(MakeServerCredentials(secret).value()) {}
  explicit Driver(const std::shared_ptr<grpc::ServerCredentials>& credentials) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", credentials, &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  ~Driver() override { server_->Shutdown(std::chrono::system_clock::now()); }

  const std::string& address() const { return address_; }
  std::string secret;  // As the last call carried it.

  grpc::Status Attach(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<v1::AgentOrder, v1::AgentReport>* /*stream*/) override {
    const auto it = context->client_metadata().find("muster-secret");
    if (it != context->client_metadata().end()) {
      secret.assign(it->second.data(), it->second.size());
    }
    return grpc::Status::OK;
  }

 private:
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

grpc::Status Call(const std::shared_ptr<grpc::Channel>& channel, std::chrono::seconds deadline) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + deadline);
  context.set_wait_for_ready(true);  // It goes on trying, as the agent does.
  context.AddMetadata("muster-secret", kSecret);
  const auto stream = v1::Agents::NewStub(channel)->Attach(&context);
  stream->WritesDone();
  return stream->Finish();
}

TEST_CASE("credentials of the same secret connect") {
  Driver driver(kSecret);
  const grpc::Status status = Call(ChannelTo(driver.address(), kSecret), kHangBound);
  CHECK(status.ok());
  CHECK(driver.secret == kSecret);
}

TEST_CASE("credentials of another secret are refused by the agent, which sends nothing") {
  Driver driver("another secret of 32 characters.");
  CHECK_FALSE(Call(ChannelTo(driver.address(), kSecret), kPatience).ok());
  CHECK(driver.secret.empty());
}

TEST_CASE("credentials refuse a driver without TLS, and an agent without") {
  Driver plain(grpc::InsecureServerCredentials());
  CHECK_FALSE(Call(ChannelTo(plain.address(), kSecret), kPatience).ok());
  CHECK(plain.secret.empty());
  Driver driver(kSecret);
  CHECK_FALSE(
      Call(ChannelTo(driver.address(), grpc::InsecureChannelCredentials()), kPatience).ok());
  CHECK(driver.secret.empty());
}

// Without the override gRPC would look for the address in the certificate, which it does not hold.
TEST_CASE("credentials refuse a certificate that the job's authority gave to no driver") {
  Driver driver(kSecret);
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride("somebody.else");
  CHECK_FALSE(Call(grpc::CreateCustomChannel(
                       driver.address(), MakeChannelCredentials(kSecret).value(), arguments),
                   kPatience)
                  .ok());
  CHECK(driver.secret.empty());
}

// Bytes on the wire, of a channel that tries for a while.
TlsPeer::Seen Record(std::optional<ServerIdentity> identity) {
  TlsPeer peer(std::move(identity));
  {
    const auto channel = ChannelTo(peer.address(), kSecret);
    [[maybe_unused]] const grpc::Status status = Call(channel, kPatience);
  }
  return peer.Finish();
}

TEST_CASE("secret goes to a peer that has proved to be the driver") {
  // Without this case the next would prove nothing: here the recorder does find it.
  const TlsPeer::Seen seen = Record(MakeServerIdentity(kSecret).value());
  CHECK(seen.shaken);
  CHECK(seen.clear.find(kSecret) != std::string::npos);
  CHECK(seen.wire.find(kSecret) == std::string::npos);
}

TEST_CASE("secret does not go to a man in the middle") {
  const TlsPeer::Seen seen = Record(MakeServerIdentity("the secret of somebody else").value());
  CHECK_FALSE(seen.wire.empty());
  CHECK(seen.clear.empty());
  CHECK(seen.wire.find(kSecret) == std::string::npos);
}

TEST_CASE("secret does not go to a peer that speaks no TLS") {
  const TlsPeer::Seen seen = Record(std::nullopt);
  CHECK_FALSE(seen.wire.empty());
  CHECK(seen.wire.find(kSecret) == std::string::npos);
}

}  // namespace
}  // namespace muster::launcher
