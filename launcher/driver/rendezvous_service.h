#pragma once

// RendezvousService: the driver's gRPC edge. It listens, authenticates agents, and hands their
// streams to AgentSessions. It decides nothing.
//
// Threads: gRPC's own threads run the calls, which only Post to the loop. Methods are called on the
// loop thread.

#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/ids.h"
#include "common/loop.h"
#include "common/mutex.h"
#include "common/network.h"
#include "common/status.h"
#include "launcher/driver/agent_sessions.h"
#include "launcher/driver/grpc_listener.h"
#include "launcher/driver/output_stream.h"
#include "launcher/driver/output_writer.h"
#include "muster/v1/agents.grpc.pb.h"

namespace muster::launcher {

class RendezvousService {
 public:
  /// `loop`, `listener` and `output` outlive the service.
  RendezvousService(Loop& loop, AgentListener& listener, OutputWriter& output, std::string secret);
  ~RendezvousService();
  RendezvousService(const RendezvousService&) = delete;
  RendezvousService& operator=(const RendezvousService&) = delete;

  /// Listens on the loopback address, IPv4 or else IPv6, for the agents of this machine.
  Status Start(PortRange ports = {}, AddressFamily family = AddressFamily::kAny);
  /// Address literal with port, once started.
  const std::string& address() const { return address_; }

  /// Listens at these literals (without port) too, over TLS, for agents across a network. Succeeds
  /// if one of them can be had.
  Status StartRoutable(const std::vector<std::string>& literals, PortRange ports);
  /// Literals with port; empty before StartRoutable.
  const std::vector<std::string>& routable_addresses() const { return routable_; }

  // As AgentSessions.
  void Send(const HostId& host, v1::AgentOrder order) { sessions_.Send(host, std::move(order)); }
  void Forget(const HostId& host) { sessions_.Forget(host); }
  /// Ends every stream. No call of the listener comes after it has returned.
  void Shutdown();

 private:
  class Service;
  struct Server {
    std::unique_ptr<Service> service;
    std::unique_ptr<grpc::Server> server;
    std::unique_ptr<GrpcListener> listener;  // Destroyed first: it hands connections to the server.
  };
  Result<std::string> Listen(const std::string& literal,
                             PortRange ports,
                             const std::shared_ptr<grpc::ServerCredentials>& credentials);
  void OnForgotten(const std::string& session);
  /// Any thread.
  std::shared_ptr<OutputSession> OutputOf(const std::string& session);

  Loop& loop_;
  OutputWriter& output_;
  const std::string secret_;
  AgentSessions sessions_;
  std::string address_;
  std::vector<std::string> routable_;
  std::vector<Server> servers_;

  Mutex mutex_;
  // By session id; shared with the streams.
  std::map<std::string, std::shared_ptr<OutputSession>> outputs_ MUSTER_GUARDED_BY(mutex_);
};

}  // namespace muster::launcher
