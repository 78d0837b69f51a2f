#pragma once

// DriverLink: one Attach stream of an agent. It sends reports in order, each once; hands orders to
// the loop, one at a time and in order; and tells once when the stream is broken. It never
// reconnects by itself: see DriverSession, which also bounds what waits to be sent. Only the newest
// summary is kept, so that a stopped driver costs nothing.
//
// Threads: all methods and callbacks on the loop thread. The destructor waits only for gRPC's own
// threads, never for the driver.

#include <grpcpp/channel.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/loop.h"
#include "common/status.h"
#include "muster/v1/agents.grpc.pb.h"

namespace muster::launcher {

/// A channel to a driver on this machine. A literal: no proxy and no name look-up, and no
/// keepalive, which would take a stopped driver for a dead one.
Result<std::shared_ptr<grpc::Channel>> MakeDriverChannel(const std::string& literal);
/// Across a network: over TLS, to the driver that holds this secret and to nobody else.
Result<std::shared_ptr<grpc::Channel>> MakeRemoteDriverChannel(const std::string& literal,
                                                               const std::string& secret);

class DriverLink {
 public:
  struct Callbacks {
    std::function<void(const v1::AgentOrder&)> order;
    /// Once. kOk: the driver ended the stream; kInvalid: it refused this agent, for good;
    /// kUnavailable: anything else.
    std::function<void(const Status&)> broken;
  };

  DriverLink(Loop& loop,
             std::shared_ptr<grpc::Channel> channel,
             const std::string& secret,
             Callbacks callbacks);
  ~DriverLink();
  DriverLink(const DriverLink&) = delete;
  DriverLink& operator=(const DriverLink&) = delete;

  /// Opens the stream with the hello as its first report.
  void Start(const v1::AgentHello& hello);
  /// Dropped if the stream is broken.
  void Send(v1::AgentReport report);
  /// Ends the stream after all reports so far; `broken` comes when the driver has ended it too.
  void Finish();

 private:
  class Stream;
  std::unique_ptr<Stream> stream_;
};

}  // namespace muster::launcher
