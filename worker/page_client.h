#pragma once

// PageClient: asks the agent for the page that proves this process alive (common/worker_page.h) and
// holds it. Not the gRPC stream.
//
// Threads: Connect in any; Lock, Tick and Unlock in the engine's thread, which owns the mutex.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "common/status.h"
#include "common/worker_page.h"
#include "worker/socket.h"

namespace muster::worker {

class PageClient {
 public:
  /// Waits at most `timeout` for the agent's answer.
  static Result<std::unique_ptr<PageClient>> Connect(const std::string& directory,
                                                     uint64_t incarnation,
                                                     const std::string& key,
                                                     std::chrono::milliseconds timeout);
  ~PageClient();
  PageClient(const PageClient&) = delete;
  PageClient& operator=(const PageClient&) = delete;

  /// From here on the death of the calling thread is the death of this worker.
  Status Lock();
  void Tick();
  /// Means: this worker has shut down.
  void Unlock();

  /// Readable when the agent has something to say; stays this object's.
  int connection() const { return connection_.get(); }
  /// What the agent says next. kUnavailable: nothing now; other failures: nothing any more.
  Result<GenerationOver> Read();

 private:
  PageClient(WorkerPage* page, PrivateFd connection)
      : page_(page), connection_(std::move(connection)) {}

  WorkerPage* const page_;
  const PrivateFd connection_;
};

}  // namespace muster::worker
