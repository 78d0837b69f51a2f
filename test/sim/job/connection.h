#pragma once

// Connection: one Attach call of an agent at the driver, with both its ends. What gRPC does for
// AttachStream and DriverLink.

#include <functional>
#include <memory>
#include <string>

#include "launcher/driver/agent_sessions.h"
#include "test/sim/job/network.h"

namespace muster::sim {

class Site;

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  struct Client {
    Loop* loop = nullptr;
    std::function<void(const v1::AgentOrder&)> order;
    std::function<void(const grpc::Status&)> broken;
  };

  Connection(Site& site, std::string machine, Client client);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // The agent's end.
  void Open();
  void Send(v1::AgentReport report);
  /// No more reports: the driver is to end the call.
  void HalfClose();
  /// The agent, or its process, does not want it any more.
  void Drop();

  /// A fault: some of what is under way is lost, and both ends learn of it.
  void Break();
  /// The driver's process is gone.
  void LoseDriver();
  /// The story is over: what is under way holds this connection.
  void Forget();
  const std::string& machine() const { return machine_; }
  bool open() const { return !over_; }

 private:
  class Stream;

  void MayBreak();
  void TellClient(const grpc::Status& status);
  void TellDriver();

  Site& site_;
  const std::string machine_;  // The agent's.
  Client client_;
  std::shared_ptr<Flow> up_;
  std::shared_ptr<Flow> down_;
  std::shared_ptr<Stream> stream_;  // The driver's end; AgentSessions shares it.
  bool over_ = false;               // For the driver.
};

}  // namespace muster::sim
