#include "launcher/driver/attach_stream.h"

#include <utility>

namespace muster::launcher {

AttachStream::AttachStream(Loop& loop, Callbacks callbacks)
    : loop_(loop), callbacks_(std::move(callbacks)) {}

AttachStream* AttachStream::Begin(Loop& loop, Callbacks callbacks) {
  // shared_ptr: gRPC keeps the call until OnDone, the loop what was posted about it.
  std::shared_ptr<AttachStream> stream(new AttachStream(loop, std::move(callbacks)));
  AttachStream* call = stream.get();
  call->self_ = std::move(stream);
  loop.Post([&loop, weak = std::weak_ptr<AttachStream>(call->self_)] {
    loop.After(kHelloDeadline, [weak] {
      const std::shared_ptr<AttachStream> silent = weak.lock();
      if (silent != nullptr && !silent->greeted) {
        silent->Close({grpc::StatusCode::DEADLINE_EXCEEDED, "no hello"});
      }
    });
  });
  call->StartRead(&call->incoming_);
  return call;
}

void AttachStream::Send(const v1::AgentOrder& order) {
  const MutexLock lock(mutex_);
  if (closed_) {
    return;
  }
  if (queue_.size() >= kQueuedOrdersMax) {
    closed_ = true;
    Finish({grpc::StatusCode::RESOURCE_EXHAUSTED, "the agent does not read its orders"});
    return;
  }
  queue_.push_back(order);
  if (queue_.size() == 1) {
    StartWrite(&queue_.front());
  }
}

void AttachStream::Close(const grpc::Status& status) {
  const MutexLock lock(mutex_);
  if (!closed_) {
    closed_ = true;
    Finish(status);
  }
}

void AttachStream::OnReadDone(bool ok) {
  if (!ok) {
    Close(grpc::Status::OK);
    return;
  }
  loop_.Post([self = self_, report = incoming_] { self->callbacks_.report(self, report); });
  StartRead(&incoming_);
}

void AttachStream::OnWriteDone(bool ok) {
  const MutexLock lock(mutex_);
  queue_.pop_front();
  if (ok && !closed_ && !queue_.empty()) {
    StartWrite(&queue_.front());
  }
}

void AttachStream::OnCancel() {
  Close(grpc::Status::CANCELLED);
}

void AttachStream::OnDone() {
  std::shared_ptr<AttachStream> self = std::move(self_);
  loop_.Post([self] { self->callbacks_.closed(self); });
}

}  // namespace muster::launcher
