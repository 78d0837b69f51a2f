#pragma once

// RendezvousService: the driver's gRPC edge. It authenticates agents, keeps a session per host that
// outlives its streams, and passes each report to the driver once and in order. It decides nothing.
//
// Threads: gRPC's own threads run the calls, which only Post to the loop. Methods are called on the
// loop thread.

#include <grpcpp/grpcpp.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/ids.h"
#include "common/loop.h"
#include "common/mutex.h"
#include "common/network.h"
#include "common/status.h"
#include "launcher/driver/attach_stream.h"
#include "launcher/driver/grpc_listener.h"
#include "launcher/driver/output_stream.h"
#include "launcher/driver/output_writer.h"
#include "launcher/session/replay_queue.h"
#include "muster/v1/agents.grpc.pb.h"

namespace muster::launcher {

/// Receives on the loop thread what agents say.
class AgentListener {
 public:
  virtual ~AgentListener() = default;
  /// Somebody with the secret wants to be this host's agent, in a new session. Gives the reason for
  /// a refusal; nothing: OnAgentAttached follows.
  virtual std::optional<std::string> OnAgentHello(const HostId& host,
                                                  const v1::AgentHello& hello) = 0;
  virtual void OnAgentAttached(const HostId& host, const v1::AgentHello& hello) = 0;
  /// Its session goes on over another stream, and it has got an answer: the lease begins anew.
  virtual void OnAgentResumed(const HostId& host) = 0;
  /// It was heard of and got an acknowledgement: the lease begins anew.
  virtual void OnAgentSummary(const HostId& host) = 0;
  virtual void OnAgentReport(const HostId& host, const v1::AgentReport& report) = 0;
  /// Its stream broke or was ended; the session stays until Forget.
  virtual void OnAgentDetached(const HostId& host, const std::string& why) = 0;
};

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

  /// Queues an order for the host's agent; kept for its next stream if this one has broken. Dropped
  /// if the host has no session.
  void Send(const HostId& host, v1::AgentOrder order);
  /// Ends the host's session: its agent, should it come back, is refused.
  void Forget(const HostId& host);
  /// Ends every stream. No call of the listener comes after it has returned.
  void Shutdown();

 private:
  class Service;
  struct Server {
    std::unique_ptr<Service> service;
    std::unique_ptr<grpc::Server> server;
    std::unique_ptr<GrpcListener> listener;  // Destroyed first: it hands connections to the server.
  };
  struct Session {
    std::string id;
    ReplayQueue<v1::AgentOrder> orders;
    ReplayFilter reports;
    std::shared_ptr<AttachStream> stream;  // Null while there is none; gRPC shares it.
  };

  Result<std::string> Listen(const std::string& literal,
                             PortRange ports,
                             const std::shared_ptr<grpc::ServerCredentials>& credentials);
  void HandleReport(const std::shared_ptr<AttachStream>& stream, const v1::AgentReport& report);
  void HandleHello(const std::shared_ptr<AttachStream>& stream, const v1::AgentHello& hello);
  void Adopt(Session& session, const std::shared_ptr<AttachStream>& stream);
  void Resume(Session& session,
              const std::shared_ptr<AttachStream>& stream,
              const v1::AgentHello& hello);
  void HandleSummary(const HostId& host, Session& session, const v1::AgentSummary& summary);
  void HandleClosed(const std::shared_ptr<AttachStream>& stream);
  /// Any thread.
  std::shared_ptr<OutputSession> OutputOf(const std::string& session);

  Loop& loop_;
  AgentListener& listener_;
  OutputWriter& output_;
  const std::string secret_;
  std::string address_;
  std::vector<std::string> routable_;
  bool open_ = false;
  std::vector<Server> servers_;
  std::map<HostId, Session> sessions_;

  Mutex mutex_;
  // By session id; shared with the streams.
  std::map<std::string, std::shared_ptr<OutputSession>> outputs_ MUSTER_GUARDED_BY(mutex_);
};

}  // namespace muster::launcher
