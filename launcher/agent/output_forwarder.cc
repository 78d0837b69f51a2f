#include "launcher/agent/output_forwarder.h"

#include <fcntl.h>
#include <grpcpp/support/client_callback.h>
#include <pthread.h>
#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <future>

#include "common/log.h"
#include "launcher/agent/driver_link.h"
#include "muster/v1/agents.grpc.pb.h"

namespace muster::launcher {
namespace {

constexpr size_t kReadBytes = 64 * 1024;

}  // namespace

// gRPC calls it on its own threads; each call only posts to the forwarder's loop. The hold keeps
// OnDone from coming while the loop may still start a write.
class OutputForwarder::Stream final : public grpc::ClientWriteReactor<v1::OutputChunk> {
 public:
  Stream(OutputForwarder& owner, std::shared_ptr<grpc::Channel> channel, const std::string& secret)
      : owner_(owner), stub_(v1::Agents::NewStub(std::move(channel))) {
    context_.AddMetadata(kSecretKey, secret);
    stub_->async()->ForwardOutput(&context_, &end_, this);
    AddHold();
    StartCall();
  }

  void Send(v1::OutputChunk chunk) {
    if (broken_) {
      return;
    }
    bytes_ += chunk.lines().size();
    queue_.push_back(std::move(chunk));
    WriteNext();
  }

  void Finish() {
    finishing_ = true;
    WriteNext();
  }

  /// Not yet handed to gRPC's transport.
  size_t bytes() const { return bytes_; }

  // Cancels and waits for gRPC to let go; the driver has no part in that.
  void Stop() {
    context_.TryCancel();
    ReleaseHold();
    done_->get_future().wait();
  }

  void OnWriteDone(bool ok) override {
    owner_.loop_.Post([this, ok] { Written(ok); });
  }
  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<std::promise<void>> done = done_;
    owner_.loop_.Post([this, status] { Done(status); });
    done->set_value();  // From here on this object may be gone.
  }

 private:
  void WriteNext() {
    if (writing_ || broken_ || closed_) {
      return;
    }
    if (!queue_.empty()) {
      writing_ = true;
      StartWrite(&queue_.front());
    } else if (finishing_) {
      closed_ = true;
      StartWritesDone();
      ReleaseHold();
    }
  }

  void Written(bool ok) {
    writing_ = false;
    bytes_ -= queue_.front().lines().size();
    queue_.pop_front();
    if (!ok) {
      broken_ = true;
      bytes_ = 0;
      queue_.clear();
      ReleaseHold();
    }
    WriteNext();
    owner_.OnSpace();
  }

  void Done(const grpc::Status& status) {
    broken_ = true;
    bytes_ = 0;
    queue_.clear();
    if (!status.ok() && !closed_) {
      spdlog::warn("output of workers is no longer forwarded: {}", status.error_message());
    }
    owner_.OnStreamDone();
  }

  void ReleaseHold() {
    if (!std::exchange(released_, true)) {
      RemoveHold();
    }
  }

  OutputForwarder& owner_;  // Outlives this, and so does its loop; its thread has ended before.
  std::unique_ptr<v1::Agents::Stub> stub_;
  grpc::ClientContext context_;
  v1::OutputEnd end_;
  std::deque<v1::OutputChunk> queue_;  // The first is being written while writing_.
  size_t bytes_ = 0;
  bool writing_ = false;
  bool finishing_ = false;
  bool closed_ = false;  // StartWritesDone was called.
  bool broken_ = false;
  bool released_ = false;
  // shared_ptr: setting it must not outlive it.
  std::shared_ptr<std::promise<void>> done_ = std::make_shared<std::promise<void>>();
};

OutputForwarder::OutputForwarder(std::shared_ptr<grpc::Channel> channel,
                                 std::string secret,
                                 std::string host)
    : host_(std::move(host)),
      stream_(std::make_unique<Stream>(*this, std::move(channel), secret)),
      thread_([this] {
        ::pthread_setname_np(::pthread_self(), "output");
        loop_.Run();
      }) {}

OutputForwarder::~OutputForwarder() {
  loop_.Stop();
  thread_.join();
  stream_->Stop();
}

void OutputForwarder::Add(const OutputOrigin& origin, UniqueFd out, UniqueFd err) {
  // shared_ptr: a closure of the loop is copyable, a descriptor is not.
  auto fds = std::make_shared<std::pair<UniqueFd, UniqueFd>>(std::move(out), std::move(err));
  {
    const MutexLock lock(mutex_);
    ranks_[origin.worker] = origin.rank;
  }
  loop_.Post([this, worker = origin.worker, slot = origin.slot, fds] {
    AddSource({std::move(fds->first), worker, slot, false, {}});
    AddSource({std::move(fds->second), worker, slot, true, {}});
  });
}

void OutputForwarder::AddSource(Source source) {
  const int fd = source.fd.get();
  ::fcntl(fd, F_SETFL, O_NONBLOCK);
  sources_[fd] = std::move(source);
  if (!paused_) {
    loop_.Watch(fd, EPOLLIN, [this, fd](uint32_t) { OnReadable(fd); });
  }
}

void OutputForwarder::SetRanks(const std::vector<std::pair<Incarnation, int32_t>>& ranks) {
  const MutexLock lock(mutex_);
  for (const auto& [worker, rank] : ranks) {
    if (const auto it = ranks_.find(worker); it != ranks_.end()) {
      it->second = rank;
    }
  }
}

int32_t OutputForwarder::RankOf(Incarnation worker) {
  const MutexLock lock(mutex_);
  const auto it = ranks_.find(worker);
  return it == ranks_.end() ? -1 : it->second;
}

void OutputForwarder::OnReadable(int fd) {
  const auto it = sources_.find(fd);
  if (it == sources_.end() || paused_) {
    return;
  }
  if (ReadOnce(it->second) == ReadResult::kEnd) {
    Remove(fd);
  }
  PauseIfFull();
}

OutputForwarder::ReadResult OutputForwarder::ReadOnce(Source& source) {
  std::array<char, kReadBytes> buffer;
  const ssize_t got = ::read(source.fd.get(), buffer.data(), buffer.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    return ReadResult::kNothingNow;
  }
  std::string lines;
  if (got > 0) {
    source.splitter.Feed({buffer.data(), static_cast<size_t>(got)}, lines);
  } else {
    source.splitter.Finish(lines);
  }
  Emit(source, std::move(lines));
  return got > 0 ? ReadResult::kMore : ReadResult::kEnd;
}

void OutputForwarder::Emit(const Source& source, std::string lines) {
  if (lines.empty()) {
    return;
  }
  v1::OutputChunk chunk;
  chunk.set_incarnation(source.worker.value);
  chunk.set_slot(source.slot);
  chunk.set_rank(RankOf(source.worker));
  chunk.set_is_stderr(source.is_stderr);
  chunk.set_host(host_);
  chunk.set_lines(std::move(lines));
  stream_->Send(std::move(chunk));
}

void OutputForwarder::Remove(int fd) {
  const auto it = sources_.find(fd);
  const Incarnation worker = it->second.worker;
  loop_.Unwatch(fd);
  sources_.erase(it);
  const bool other_left = std::any_of(sources_.begin(), sources_.end(), [&](const auto& entry) {
    return entry.second.worker == worker;
  });
  if (!other_left) {
    const MutexLock lock(mutex_);
    ranks_.erase(worker);
  }
}

// Unwatched, not modified: a pipe whose writer has gone would report that again and again.
void OutputForwarder::PauseIfFull() {
  if (paused_ || stream_->bytes() < kOutputBytesMax) {
    return;
  }
  paused_ = true;
  for (const auto& [fd, source] : sources_) {
    loop_.Unwatch(fd);
  }
}

void OutputForwarder::ResumeIfRoom() {
  if (!paused_ || stream_->bytes() > kOutputBytesMax / 2) {
    return;
  }
  paused_ = false;
  for (const auto& entry : sources_) {
    const int fd = entry.first;
    loop_.Watch(fd, EPOLLIN, [this, fd](uint32_t) { OnReadable(fd); });
  }
}

void OutputForwarder::OnSpace() {
  if (flushing_) {
    DrainSources();
  } else {
    ResumeIfRoom();
  }
}

void OutputForwarder::OnStreamDone() {
  stream_done_ = true;
  if (flushing_) {
    FinishFlush();
  } else {
    ResumeIfRoom();
  }
}

void OutputForwarder::Flush(Duration limit, std::function<void()> done) {
  loop_.Post([this, limit, done = std::move(done)] {
    flushing_ = true;
    flushed_ = done;
    if (stream_done_) {
      FinishFlush();
      return;
    }
    loop_.After(limit, [this] {
      if (flushed_) {
        spdlog::warn("the driver did not take all output of the workers in time");
        FinishFlush();
      }
    });
    DrainSources();
  });
}

void OutputForwarder::DrainSources() {
  while (!sources_.empty()) {
    if (stream_->bytes() >= kOutputBytesMax) {
      return;  // OnSpace goes on.
    }
    const auto it = sources_.begin();
    const ReadResult result = ReadOnce(it->second);
    if (result == ReadResult::kNothingNow) {
      std::string rest;
      it->second.splitter.Finish(rest);
      Emit(it->second, std::move(rest));
    }
    if (result != ReadResult::kMore) {
      Remove(it->first);
    }
  }
  stream_->Finish();
}

void OutputForwarder::FinishFlush() {
  if (flushed_) {
    std::exchange(flushed_, nullptr)();
  }
}

}  // namespace muster::launcher
