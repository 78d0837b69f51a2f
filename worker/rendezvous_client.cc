#include "worker/rendezvous_client.h"

#include <grpcpp/grpcpp.h>

#include <deque>
#include <utility>

#include "common/mutex.h"
#include "common/worker_page.h"
#include "muster/v1/workers.grpc.pb.h"

namespace muster::worker {

class RendezvousClient::Stream final
    : public grpc::ClientBidiReactor<v1::WorkerReport, v1::WorkerOrder> {
 public:
  Stream(const std::string& directory, Callbacks callbacks)
      : callbacks_(std::move(callbacks)),
        stub_(v1::Workers::NewStub(grpc::CreateChannel("unix:" + directory + "/" + kGrpcSocketName,
                                                       grpc::InsecureChannelCredentials()))) {}

  // Cancelling is local: the end is told at once, whatever the agent does.
  ~Stream() override {
    context_.TryCancel();
    DropHold();
    const MutexLock lock(mutex_);
    while (started_ && !done_) {
      changed_.Wait(mutex_);
    }
  }

  void Start(v1::WorkerReport join) {
    stub_->async()->Join(&context_, this);
    AddHold();  // Send starts writes from outside of the reactions.
    StartRead(&order_);
    {
      const MutexLock lock(mutex_);
      started_ = true;
    }
    Send(std::move(join));
    StartCall();
  }

  void Send(v1::WorkerReport report) {
    const MutexLock lock(mutex_);
    if (!started_ || closing_ || hold_dropped_) {
      return;
    }
    reports_.push_back(std::move(report));
    if (reports_.size() == 1) {
      StartWrite(&reports_.front());
    }
  }

  void Close() {
    {
      const MutexLock lock(mutex_);
      if (!started_ || closing_ || hold_dropped_) {
        return;
      }
      closing_ = true;
      if (!reports_.empty()) {
        return;  // The last write goes on from here.
      }
      StartWritesDone();
    }
    DropHold();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      DropHold();
      return;
    }
    callbacks_.on_order(std::move(order_));
    order_.Clear();
    StartRead(&order_);
  }

  void OnWriteDone(bool ok) override {
    {
      const MutexLock lock(mutex_);
      reports_.pop_front();
      if (ok && !reports_.empty()) {
        StartWrite(&reports_.front());
        return;
      }
      if (ok && !closing_) {
        return;
      }
      if (ok) {
        StartWritesDone();
      }
    }
    DropHold();
  }

  void OnDone(const grpc::Status& status) override {
    callbacks_.on_end(status.ok() ? "the agent has ended the stream" : status.error_message());
    const MutexLock lock(mutex_);
    done_ = true;
    changed_.NotifyAll();
  }

 private:
  // Without the hold nothing may be started from outside any more.
  void DropHold() {
    {
      const MutexLock lock(mutex_);
      if (!started_ || hold_dropped_) {
        return;
      }
      hold_dropped_ = true;
    }
    RemoveHold();
  }

  const Callbacks callbacks_;
  std::unique_ptr<v1::Workers::Stub> stub_;
  grpc::ClientContext context_;
  v1::WorkerOrder order_;  // Owned by the read under way.

  Mutex mutex_;
  CondVar changed_;
  // The front is being written. Bounded: a worker has a handful of reports per generation.
  std::deque<v1::WorkerReport> reports_ MUSTER_GUARDED_BY(mutex_);
  bool started_ MUSTER_GUARDED_BY(mutex_) = false;
  bool closing_ MUSTER_GUARDED_BY(mutex_) = false;
  bool hold_dropped_ MUSTER_GUARDED_BY(mutex_) = false;
  bool done_ MUSTER_GUARDED_BY(mutex_) = false;
};

RendezvousClient::RendezvousClient(const std::string& directory, Callbacks callbacks)
    : stream_(std::make_unique<Stream>(directory, std::move(callbacks))) {}

RendezvousClient::~RendezvousClient() = default;

void RendezvousClient::Start(v1::WorkerReport join) {
  stream_->Start(std::move(join));
}

void RendezvousClient::Send(v1::WorkerReport report) {
  stream_->Send(std::move(report));
}

void RendezvousClient::Close() {
  stream_->Close();
}

}  // namespace muster::worker
