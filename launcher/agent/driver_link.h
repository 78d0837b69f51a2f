#pragma once

// DriverLink: the agent's end of Agents.Attach. It sends reports in order, each once; hands orders
// to the loop, one at a time and in order; and tells once when the stream is broken. It never
// reconnects by itself: what a broken stream means is the agent's decision.
//
// Bounds: reports that the driver does not take queue up to kReportsMax, then the stream counts as
// broken; only the newest summary is kept, so that a stopped driver costs nothing.
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

inline constexpr size_t kReportsMax = 65536;
inline constexpr const char* kSecretKey = "muster-secret";  // Metadata of every call.

/// A channel to the first address that answers. Literals only: no proxy and no name look-up, and
/// no keepalive, which would take a stopped driver for a dead one.
Result<std::shared_ptr<grpc::Channel>> MakeDriverChannel(const std::vector<std::string>& literals);

class DriverLink {
 public:
  struct Callbacks {
    std::function<void(const v1::AgentOrder&)> order;
    std::function<void(const Status&)> broken;  // Once; kOk: the driver ended the stream.
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
