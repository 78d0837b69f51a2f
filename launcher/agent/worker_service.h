#pragma once

// WorkerService: the gRPC server for the workers of one host, on a Unix socket in a directory of
// mode 0700. It carries reports and orders and knows nothing of what they mean; the agent answers
// each Join. A stream that breaks says nothing about the worker's life.
//
// Bounds: one report per stream is under way at a time; orders wait in an OrderQueue; at most
// kStreamsMax streams.
// Threads: all methods and callbacks on the loop thread. Stop() and the destructor wait for gRPC's
// own threads only.

#include <grpcpp/server.h>
#include <grpcpp/support/status.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "common/loop.h"
#include "common/status.h"
#include "muster/v1/workers.grpc.pb.h"

namespace muster::launcher {

inline constexpr size_t kStreamsMax = 4096;

struct StreamId {
  uint64_t value = 0;  // 0: no stream.
  auto operator<=>(const StreamId&) const = default;
};

class WorkerService {
 public:
  struct Callbacks {
    std::function<void(StreamId, const v1::WorkerReport&)> report;
    std::function<void(StreamId)> broken;  // Once; not after Finish.
  };

  WorkerService(Loop& loop, Callbacks callbacks);
  ~WorkerService();
  WorkerService(const WorkerService&) = delete;
  WorkerService& operator=(const WorkerService&) = delete;

  Status Start(const std::string& socket_path);
  /// Ignored for a stream that is gone.
  void Send(StreamId stream, v1::WorkerOrder order);
  /// Ends the stream; what waits for the worker is dropped.
  void Finish(StreamId stream, const grpc::Status& status);
  void Stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace muster::launcher
