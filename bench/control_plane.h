#pragma once

// ControlPlane: a real driver and many fake agents, which dial in over this machine's network. It
// loses workers, one after the other, and times how long the driver takes to have all re-formed.
//
// Threads: all on the caller's, plus gRPC's inside. SIGINT and SIGTERM are to be blocked.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/distribution.h"
#include "bench/driver_process.h"
#include "bench/fake_agent.h"
#include "bench/temp_directory.h"
#include "common/loop.h"
#include "common/random.h"

namespace muster::bench {

struct ControlPlaneOptions {
  int agents = 64;
  int workers = 64;                  // Of each agent.
  double cooldown_s = 2;             // So long that a loss is over before its replacement starts.
  std::chrono::seconds timeout{60};  // Of each world.
  uint64_t seed = 1;
};

/// Of one change of the world, over all agents.
struct ControlTraffic {
  size_t bytes_max = 0;
  size_t bytes_total = 0;
  size_t orders_max = 0;
};

struct ControlTimes {
  // From the loss.
  Distribution told;    // Every agent has its order of the next world.
  Distribution formed;  // The driver knows of every member that it has formed.
  // From the first agent that is told that the world will grow until all have formed.
  Distribution grown;
  ControlTraffic loss;    // Of the change with the most bytes for one agent.
  ControlTraffic growth;  // Likewise; with the start of the replacement.
};

class ControlPlane {
 public:
  /// Until the first world has formed; `started` gets the time that this took.
  static Result<std::unique_ptr<ControlPlane>> Start(const ControlPlaneOptions& options,
                                                     std::chrono::milliseconds& started);
  ~ControlPlane();
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;

  /// Loses a random worker and waits for full size again.
  Status Lose(ControlTimes& times);

 private:
  ControlPlane(const ControlPlaneOptions& options, TempDirectory directory)
      : options_(options), directory_(std::move(directory)), random_(options.seed) {}

  Status StartDriver(const std::string& secret);
  Result<std::string> AwaitDriverAddress();
  Status StartAgents(const std::string& address, const std::string& secret);
  /// Runs the loop until `done`.
  Status RunUntil(std::function<bool()> done, const std::string& what);
  void Check();
  void Fail(const std::string& message);

  /// Every agent has formed a world of this size, newer than that generation.
  Status AwaitWorld(size_t size, uint64_t after_generation, const std::string& what);
  bool ToldOf(size_t size, uint64_t after_generation) const;
  Instant ToldAt() const;
  ControlTraffic TakeTraffic();
  size_t full_size() const {
    return static_cast<size_t>(options_.agents) * static_cast<size_t>(options_.workers);
  }

  const ControlPlaneOptions options_;
  const TempDirectory directory_;  // Outlives the driver, which writes into it.
  Random random_;
  Loop loop_;
  std::optional<DriverProcess> driver_;
  std::vector<std::unique_ptr<FakeAgent>> agents_;
  std::function<bool()> done_;
  Status failure_;
};

}  // namespace muster::bench
