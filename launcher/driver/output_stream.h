#pragma once

// OutputStream: one ForwardOutput call as the driver's service sees it. The next chunk is read when
// the writer has taken the last one, so a blocked terminal blocks this stream and, through it, the
// workers' pipes.
//
// Threads: gRPC's and the output writer's.

#include <grpcpp/grpcpp.h>

#include <memory>

#include "common/mutex.h"
#include "launcher/driver/output_writer.h"
#include "launcher/session/replay_queue.h"
#include "muster/v1/agents.grpc.pb.h"

namespace muster::launcher {

/// What all output streams of one session share: each line is printed once. Any thread.
class OutputSession {
 public:
  enum class Taken : uint8_t { kYes, kFull, kGap };

  Taken Take(OutputWriter& writer, const v1::OutputChunk& chunk);
  uint64_t received();

 private:
  Mutex mutex_;
  ReplayFilter filter_ MUSTER_GUARDED_BY(mutex_);
};

class OutputStream final : public grpc::ServerBidiReactor<v1::OutputChunk, v1::OutputAck> {
 public:
  /// `writer` outlives the call, which deletes itself when gRPC is done with it.
  OutputStream(OutputWriter& writer, std::shared_ptr<OutputSession> session);
  /// Refuses the call.
  OutputStream(OutputWriter& writer, const grpc::Status& refusal);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone() override { delete this; }

 private:
  void Offer();
  void WriteAck() MUSTER_REQUIRES(mutex_);

  OutputWriter& writer_;
  const std::shared_ptr<OutputSession> session_;  // Shared with other streams of the session.
  v1::OutputChunk incoming_;
  Mutex mutex_;
  bool writing_ MUSTER_GUARDED_BY(mutex_) = false;
  bool ended_ MUSTER_GUARDED_BY(mutex_) = false;  // No more reads; finishes after the last ack.
  grpc::Status end_ MUSTER_GUARDED_BY(mutex_);
  uint64_t acknowledged_ MUSTER_GUARDED_BY(mutex_) = 0;
  v1::OutputAck ack_;
};

}  // namespace muster::launcher
