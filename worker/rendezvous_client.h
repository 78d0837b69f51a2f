#pragma once

// RendezvousClient: the worker's end of the stream with its agent (proto/muster/v1/workers.proto).
// It carries reports and orders and understands neither.
//
// Threads: Send, Close and Cancel from any; the callbacks come on gRPC's threads and must not
// block.

#include <functional>
#include <memory>
#include <string>

#include "common/status.h"
#include "muster/v1/workers.pb.h"

namespace muster::worker {

class RendezvousClient {
 public:
  struct Callbacks {
    std::function<void(v1::WorkerOrder order)> on_order;
    /// Last. The stream has ended; the reason in words.
    std::function<void(const std::string& reason)> on_end;
  };

  RendezvousClient(const std::string& directory, Callbacks callbacks);
  /// Cancels what is left of the stream.
  ~RendezvousClient();

  /// The first report has to be Join.
  void Start(v1::WorkerReport join);
  /// Dropped once the stream has ended.
  void Send(v1::WorkerReport report);
  /// No more reports; the agent is asked to end the stream.
  void Close();

 private:
  class Stream;
  std::unique_ptr<Stream> stream_;
};

}  // namespace muster::worker
