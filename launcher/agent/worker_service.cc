#include "launcher/agent/worker_service.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/server_callback.h>

#include <map>
#include <utility>

#include "common/mutex.h"
#include "launcher/agent/order_queue.h"

namespace muster::launcher {
namespace {

constexpr int kMessageBytesMax = 1 << 20;

}  // namespace

class WorkerService::Impl final : public v1::Workers::CallbackService {
 public:
  Impl(Loop& loop, Callbacks callbacks) : loop_(loop), callbacks_(std::move(callbacks)) {}

  Status Start(const std::string& socket_path);
  void Send(StreamId id, v1::WorkerOrder order);
  void Finish(StreamId id, const grpc::Status& status);
  void Stop();

  grpc::ServerBidiReactor<v1::WorkerReport, v1::WorkerOrder>* Join(
      grpc::CallbackServerContext* context) override;

 private:
  class Stream;

  Stream* Find(StreamId id);
  void Remove(StreamId id);
  void Read(StreamId id, bool ok);
  void Written(StreamId id, bool ok);

  Loop& loop_;
  Callbacks callbacks_;
  std::unique_ptr<grpc::Server> server_;
  // shared_ptr: closures that outlive this object in the loop's queue see that it is gone.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);

  Mutex mutex_;
  uint64_t next_id_ MUSTER_GUARDED_BY(mutex_) = 1;
  bool stopping_ MUSTER_GUARDED_BY(mutex_) = false;
  // Streams that have not been finished. A stream deletes itself in OnDone, which gRPC calls only
  // after Finish: so what stands here is alive.
  std::map<StreamId, Stream*> streams_ MUSTER_GUARDED_BY(mutex_);
};

// gRPC calls it on its own threads; each call only posts. All else is the loop's.
class WorkerService::Impl::Stream final
    : public grpc::ServerBidiReactor<v1::WorkerReport, v1::WorkerOrder> {
 public:
  Stream(Impl& service, StreamId id) : service_(service), id_(id) {}

  void Begin() { StartRead(&report_); }
  void ReadNext() { StartRead(&report_); }
  const v1::WorkerReport& report() const { return report_; }

  void Send(v1::WorkerOrder order) {
    queue_.Push(std::move(order));
    WriteNext();
  }

  void Written() {
    writing_ = false;
    WriteNext();
  }

  void OnReadDone(bool ok) override {
    Post([service = &service_, id = id_, ok] { service->Read(id, ok); });
  }
  void OnWriteDone(bool ok) override {
    Post([service = &service_, id = id_, ok] { service->Written(id, ok); });
  }
  void OnDone() override { delete this; }

 private:
  void Post(Loop::Callback callback) {
    service_.loop_.Post(
        [alive = std::weak_ptr<bool>(service_.alive_), callback = std::move(callback)] {
          if (!alive.expired()) {
            callback();
          }
        });
  }

  void WriteNext() {
    if (writing_) {
      return;
    }
    if (std::optional<v1::WorkerOrder> order = queue_.Pop()) {
      writing_ = true;
      in_flight_ = std::move(*order);
      StartWrite(&in_flight_);
    }
  }

  Impl& service_;
  const StreamId id_;
  v1::WorkerReport report_;
  v1::WorkerOrder in_flight_;
  OrderQueue queue_;
  bool writing_ = false;
};

Status WorkerService::Impl::Start(const std::string& socket_path) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + socket_path, grpc::InsecureServerCredentials());
  builder.SetMaxReceiveMessageSize(kMessageBytesMax);
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
  return server_ == nullptr ? Status::Failed("cannot listen on " + socket_path) : Status::Ok();
}

grpc::ServerBidiReactor<v1::WorkerReport, v1::WorkerOrder>* WorkerService::Impl::Join(
    grpc::CallbackServerContext* /*context*/) {
  const MutexLock lock(mutex_);
  const StreamId id{next_id_++};
  auto* stream = new Stream(*this, id);
  if (stopping_ || streams_.size() >= kStreamsMax) {
    stream->Finish({grpc::StatusCode::UNAVAILABLE, "the agent takes no more workers"});
    return stream;
  }
  streams_[id] = stream;
  stream->Begin();
  return stream;
}

WorkerService::Impl::Stream* WorkerService::Impl::Find(StreamId id) {
  const MutexLock lock(mutex_);
  const auto it = streams_.find(id);
  return it == streams_.end() ? nullptr : it->second;
}

void WorkerService::Impl::Remove(StreamId id) {
  const MutexLock lock(mutex_);
  streams_.erase(id);
}

void WorkerService::Impl::Send(StreamId id, v1::WorkerOrder order) {
  if (Stream* stream = Find(id)) {
    stream->Send(std::move(order));
  }
}

void WorkerService::Impl::Finish(StreamId id, const grpc::Status& status) {
  if (Stream* stream = Find(id)) {
    Remove(id);
    stream->Finish(status);
  }
}

// The report is given on before the next is read: a worker that floods its agent is slowed.
void WorkerService::Impl::Read(StreamId id, bool ok) {
  Stream* stream = Find(id);
  if (stream == nullptr) {
    return;
  }
  if (!ok) {
    Finish(id, grpc::Status::OK);
    callbacks_.broken(id);
    return;
  }
  callbacks_.report(id, stream->report());
  if (Find(id) != nullptr) {  // The callback may have finished it.
    stream->ReadNext();
  }
}

void WorkerService::Impl::Written(StreamId id, bool ok) {
  Stream* stream = Find(id);
  if (stream == nullptr) {
    return;
  }
  if (ok) {
    stream->Written();
  } else {
    Finish(id, grpc::Status::CANCELLED);
    callbacks_.broken(id);
  }
}

void WorkerService::Impl::Stop() {
  std::map<StreamId, Stream*> streams;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    streams.swap(streams_);
  }
  for (const auto& [id, stream] : streams) {
    stream->Finish({grpc::StatusCode::UNAVAILABLE, "the agent ends"});
  }
  if (server_ != nullptr) {
    // Now: what a worker has not read by then is cancelled, and nobody is waited for.
    server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
  }
}

WorkerService::WorkerService(Loop& loop, Callbacks callbacks)
    : impl_(std::make_unique<Impl>(loop, std::move(callbacks))) {}

WorkerService::~WorkerService() {
  Stop();
}

Status WorkerService::Start(const std::string& socket_path) {
  return impl_->Start(socket_path);
}
void WorkerService::Send(StreamId stream, v1::WorkerOrder order) {
  impl_->Send(stream, std::move(order));
}
void WorkerService::Finish(StreamId stream, const grpc::Status& status) {
  impl_->Finish(stream, status);
}
void WorkerService::Stop() {
  impl_->Stop();
}

}  // namespace muster::launcher
