#pragma once

// AttachStream: one Attach call as the driver's service sees it. Reports are posted to the loop in
// order; orders are queued until gRPC takes them. It knows nothing of sessions.
//
// Threads: gRPC's call the reactions; Send and Close from any thread; the callbacks, and the two
// public fields, belong to the loop thread.

#include <grpcpp/grpcpp.h>

#include <deque>
#include <functional>
#include <memory>

#include "common/ids.h"
#include "common/loop.h"
#include "common/mutex.h"
#include "launcher/driver/agent_sessions.h"
#include "muster/v1/agents.grpc.pb.h"

namespace muster::launcher {

/// A call that has not said hello by then is closed.
inline constexpr Duration kHelloDeadline = std::chrono::seconds(5);

class AttachStream final : public grpc::ServerBidiReactor<v1::AgentReport, v1::AgentOrder>,
                           public AgentStream {
 public:
  struct Callbacks {
    std::function<void(const std::shared_ptr<AgentStream>&, const v1::AgentReport&)> report;
    std::function<void(const std::shared_ptr<AgentStream>&)> closed;
  };

  /// The call keeps itself alive until gRPC is done with it. `loop` outlives it.
  static AttachStream* Begin(Loop& loop, Callbacks callbacks);

  void Send(const v1::AgentOrder& order) override;
  void Close(const grpc::Status& status) override;

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  AttachStream(Loop& loop, Callbacks callbacks);

  Loop& loop_;
  const Callbacks callbacks_;
  std::shared_ptr<AttachStream> self_;
  v1::AgentReport incoming_;
  Mutex mutex_;
  bool closed_ MUSTER_GUARDED_BY(mutex_) = false;
  std::deque<v1::AgentOrder> queue_ MUSTER_GUARDED_BY(mutex_);  // The front is being written.
};

}  // namespace muster::launcher
