#pragma once

// WorkerPort: where the workers of a host join their agent. What gRPC does between WorkerService
// and RendezvousClient, over a socket of one machine.

#include <cstdint>
#include <functional>
#include <string>

#include "muster/v1/workers.pb.h"
#include "test/sim/job/universe.h"

namespace muster::sim {

struct WorkerEnd {
  ProcessPtr process;
  std::function<void(const v1::WorkerOrder&)> order;
  std::function<void(const std::string& reason)> ended;  // Last.
};

class WorkerPort {
 public:
  virtual ~WorkerPort() = default;
  /// Gives the number of the stream.
  virtual uint64_t Connect(WorkerEnd end) = 0;
  virtual void Report(uint64_t stream, v1::WorkerReport report) = 0;
  /// The worker has closed it, or has died.
  virtual void Close(uint64_t stream) = 0;
};

}  // namespace muster::sim
