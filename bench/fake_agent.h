#pragma once

// FakeAgent: dials in at a driver as `muster agent --join` does, over TLS and with the job's
// secret, and answers as FakeHost says. It counts what it is sent.
//
// Threads: everything on the loop thread.

#include <functional>
#include <memory>
#include <string>

#include "bench/fake_host.h"
#include "common/loop.h"
#include "launcher/agent/driver_link.h"
#include "launcher/session/replay_queue.h"

namespace muster::bench {

struct FakeAgentOptions {
  std::string host;
  uint32_t slots = 1;
  std::string driver;  // Literal.
  std::string secret;
};

class FakeAgent {
 public:
  struct Traffic {
    size_t orders = 0;
    size_t bytes = 0;  // As protobuf; gRPC and TLS add some tens per order.
  };
  struct Callbacks {
    std::function<void()> changed;
    std::function<void(const Status&)> broken;
  };

  /// `loop` outlives the agent.
  FakeAgent(Loop& loop, FakeAgentOptions options, Callbacks callbacks);
  ~FakeAgent();
  FakeAgent(const FakeAgent&) = delete;
  FakeAgent& operator=(const FakeAgent&) = delete;

  Status Start();
  void Lose(uint64_t incarnation) { Send(host_.Lose(incarnation)); }
  void Sync() { Send(host_.Sync()); }

  const FakeHost& host() const { return host_; }
  /// When it was told of the newest world.
  Instant told_at() const { return told_at_; }
  /// When it was told that the world will change; the newest time.
  Instant pending_at() const { return pending_at_; }
  /// True once the driver has taken everything that was reported.
  bool acknowledged() const { return acknowledged_ == reports_.last(); }
  /// Orders since ResetTraffic; not the acknowledgements of summaries, which come five times a
  /// second whatever happens.
  const Traffic& traffic() const { return traffic_; }
  void ResetTraffic() { traffic_ = {}; }

 private:
  void OnOrder(const v1::AgentOrder& order);
  void Send(FakeHost::Reports reports);
  void SendSummary();
  void Tick();

  Loop& loop_;
  const FakeAgentOptions options_;
  const Callbacks callbacks_;
  FakeHost host_;
  std::unique_ptr<launcher::DriverLink> link_;
  launcher::ReplayQueue<v1::AgentReport> reports_;
  launcher::ReplayFilter orders_;
  Loop::TimerId timer_;
  uint64_t summaries_ = 0;
  uint64_t acknowledged_ = 0;
  Instant told_at_;
  Instant pending_at_;
  Traffic traffic_;
};

}  // namespace muster::bench
