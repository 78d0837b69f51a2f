#pragma once

// RendezvousService: the driver's gRPC edge. It authenticates agents, turns their messages into
// calls on the driver's loop and queues orders. It decides nothing.
//
// Threads: gRPC's own threads run the reactors, which only Post to the loop. Methods are called on
// the loop thread.

#include <grpcpp/grpcpp.h>

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/ids.h"
#include "common/loop.h"
#include "common/status.h"
#include "launcher/driver/output_writer.h"
#include "muster/v1/agents.grpc.pb.h"

namespace muster::launcher {

/// Receives on the loop thread what agents say.
class AgentListener {
 public:
  virtual ~AgentListener() = default;
  /// The first stream of a host, authenticated. False refuses it (an unknown host, a second one).
  virtual bool OnAgentAttached(const HostId& host, const v1::AgentHello& hello) = 0;
  virtual void OnAgentReport(const HostId& host, const v1::AgentReport& report) = 0;
  virtual void OnAgentDetached(const HostId& host, const std::string& why) = 0;
};

class RendezvousService {
 public:
  /// `loop`, `listener` and `output` outlive the service.
  RendezvousService(Loop& loop, AgentListener& listener, OutputWriter& output, std::string secret);
  ~RendezvousService();
  RendezvousService(const RendezvousService&) = delete;
  RendezvousService& operator=(const RendezvousService&) = delete;

  /// Listens on the loopback address, IPv4 or else IPv6, on a free port.
  Status Start();
  /// Address literal with port, once started.
  const std::string& address() const { return address_; }

  /// Queues an order for the host's agent; dropped if it is not attached.
  void Send(const HostId& host, const v1::AgentOrder& order);
  /// Ends every stream. No call of the listener comes after it has returned.
  void Shutdown();

 private:
  class Service;
  class AttachStream;

  void HandleReport(const std::shared_ptr<AttachStream>& stream, const v1::AgentReport& report);
  void HandleHello(const std::shared_ptr<AttachStream>& stream, const v1::AgentHello& hello);
  void HandleClosed(const std::shared_ptr<AttachStream>& stream);

  Loop& loop_;
  AgentListener& listener_;
  OutputWriter& output_;
  const std::string secret_;
  std::string address_;
  bool open_ = false;
  std::unique_ptr<Service> service_;
  std::unique_ptr<grpc::Server> server_;
  // Shared with gRPC, which keeps a stream until its OnDone.
  std::map<HostId, std::shared_ptr<AttachStream>> streams_;
};

}  // namespace muster::launcher
