#include "launcher/driver/grpc_listener.h"

#include <grpcpp/create_channel.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/address.h"
#include "common/network.h"
#include "launcher/security/credentials.h"
#include "muster/v1/agents.grpc.pb.h"

namespace muster::launcher {
namespace {

constexpr std::chrono::seconds kPatience{20};
constexpr rlim_t kFewFiles = 256;

/// Answers every call with UNIMPLEMENTED, which proves that it arrived.
class Server {
 public:
  explicit Server(const std::shared_ptr<grpc::ServerCredentials>& credentials) {
    UniqueFd listener = ListenInRange("127.0.0.1", {}).value();
    SocketAddress bound;
    bound.size = sizeof bound.storage;
    ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&bound.storage), &bound.size);
    address_ = ToLiteral(bound);
    grpc::ServerBuilder builder;
    builder.RegisterService(&service_);
    auto acceptor = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
    listener_.emplace(loop_, std::move(listener), std::move(acceptor));
    thread_ = std::thread([this] { loop_.Run(); });
  }
  ~Server() {
    loop_.Stop();
    thread_.join();
    listener_.reset();
    server_->Shutdown(std::chrono::system_clock::now());
  }

  const std::string& address() const { return address_; }

  grpc::StatusCode Call(const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                        grpc::ChannelArguments arguments = {}) const {
    arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 100);
    arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
    arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    auto channel = grpc::CreateCustomChannel("ipv4:" + address_, credentials, arguments);
    auto stub = v1::Agents::NewStub(channel);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
    context.set_wait_for_ready(true);
    return stub->Attach(&context)->Finish().error_code();
  }

 private:
  std::string address_;
  v1::Agents::Service service_;
  std::unique_ptr<grpc::Server> server_;
  Loop loop_;
  std::optional<GrpcListener> listener_;
  std::thread thread_;
};

/// The soft limit of open files, until the end of the scope.
class OpenFiles {
 public:
  explicit OpenFiles(rlim_t limit) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit lower = before_;
    lower.rlim_cur = limit;
    ::setrlimit(RLIMIT_NOFILE, &lower);
  }
  ~OpenFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

UniqueFd Connect(const std::string& address) {
  const SocketAddress to = ParseAddress(address).value();
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience{20, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  REQUIRE(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to.storage), to.size) == 0);
  return fd;
}

/// The other side has closed, without a word.
bool IsClosed(const UniqueFd& fd) {
  char byte = 0;
  const ssize_t got = ::recv(fd.get(), &byte, 1, 0);
  return got == 0 || (got < 0 && errno == ECONNRESET);
}

}  // namespace

TEST_CASE("grpc listener brings calls to the server, with TLS and without") {
  const Server plain(grpc::InsecureServerCredentials());
  CHECK(plain.Call(grpc::InsecureChannelCredentials()) == grpc::StatusCode::UNIMPLEMENTED);

  const std::string secret(64, 's');
  const Server tls(MakeServerCredentials(secret).value());
  grpc::ChannelArguments arguments;
  ExpectDriver(arguments);
  CHECK(tls.Call(MakeChannelCredentials(secret).value(), arguments) ==
        grpc::StatusCode::UNIMPLEMENTED);
}

TEST_CASE("grpc listener leaves half of the descriptors to others, whoever connects") {
  CHECK(GrpcListener::FirstReserved(1024) == 512);
  CHECK(GrpcListener::FirstReserved(RLIM_INFINITY) == 1 << 19);

  const Server server(grpc::InsecureServerCredentials());
  {
    const OpenFiles limit(kFewFiles);
    std::vector<UniqueFd> taken;
    while (taken.empty() || taken.back().get() + 1 < GrpcListener::FirstReserved(kFewFiles)) {
      taken.emplace_back(::dup(STDIN_FILENO));
    }
    for (int i = 0; i < 40; ++i) {
      CHECK(IsClosed(Connect(server.address())));
    }
  }
  CHECK(server.Call(grpc::InsecureChannelCredentials()) == grpc::StatusCode::UNIMPLEMENTED);
}

TEST_CASE("grpc listener accepts again after there were no descriptors at all") {
  const Server server(grpc::InsecureServerCredentials());
  {
    const OpenFiles limit(kFewFiles);
    std::vector<UniqueFd> taken;
    UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    do {
      taken.emplace_back(::dup(STDIN_FILENO));
    } while (taken.back().valid());
    const SocketAddress to = ParseAddress(server.address()).value();
    REQUIRE(::connect(client.get(), reinterpret_cast<const sockaddr*>(&to.storage), to.size) == 0);
    const timeval longer_than_a_pause{0, 300'000};
    ::setsockopt(
        client.get(), SOL_SOCKET, SO_RCVTIMEO, &longer_than_a_pause, sizeof longer_than_a_pause);
    char byte = 0;
    CHECK(::recv(client.get(), &byte, 1, 0) < 0);  // Kept waiting, not dropped.
  }
  CHECK(server.Call(grpc::InsecureChannelCredentials()) == grpc::StatusCode::UNIMPLEMENTED);
}

}  // namespace muster::launcher
