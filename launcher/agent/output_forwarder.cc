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
#include "launcher/session/metadata.h"
#include "muster/v1/agents.grpc.pb.h"

namespace muster::launcher {
namespace {

constexpr size_t kReadBytes = 64 * 1024;
constexpr Duration kRetryAfter = std::chrono::seconds(1);

}  // namespace

// One ForwardOutput call. gRPC calls it on its own threads; each call only posts to the forwarder's
// loop. The hold keeps OnDone from coming while the loop may still start a write or read.
class OutputForwarder::Stream final
    : public grpc::ClientBidiReactor<v1::OutputChunk, v1::OutputAck> {
 public:
  Stream(OutputForwarder& owner, std::shared_ptr<grpc::Channel> channel)
      : owner_(owner), stub_(v1::Agents::NewStub(std::move(channel))) {
    context_.AddMetadata(kSecretKey, owner.options_.secret);
    context_.AddMetadata(kSessionKey, owner.options_.session);
    next_ = owner.queue_.first();
    stub_->async()->ForwardOutput(&context_, this);
    AddHold();
    StartRead(&ack_);
    StartCall();
  }
  // Cancels and waits for gRPC to let go; the driver has no part in that.
  ~Stream() override {
    context_.TryCancel();
    ReleaseHold();
    done_->get_future().wait();
  }

  /// Goes on with the owner's queue.
  void WriteNext() {
    if (writing_ || broken_ || closed_) {
      return;
    }
    // What an earlier stream brought may be acknowledged on this one before it is sent again.
    next_ = std::max(next_, owner_.queue_.first());
    if (const v1::OutputChunk* chunk = owner_.queue_.Find(next_)) {
      writing_ = true;
      ++next_;
      in_flight_ = *chunk;
      StartWrite(&in_flight_);
    } else if (owner_.all_read_) {
      closed_ = true;
      StartWritesDone();
    }
  }

  void OnWriteDone(bool ok) override {
    Post([this, ok] {
      writing_ = false;
      if (ok) {
        WriteNext();
      } else {
        Break();
      }
    });
  }
  void OnReadDone(bool ok) override {
    Post([this, ok] {
      if (!ok || broken_) {
        Break();
        return;
      }
      const uint64_t received = ack_.received();
      StartRead(&ack_);
      owner_.OnAcknowledged(received);
    });
  }
  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<std::promise<void>> done = done_;
    Post([this, status] {
      Break();
      owner_.OnStreamDone(status.ok() && closed_, status.error_message());  // Destroys this.
    });
    done->set_value();  // From here on this object may be gone.
  }

 private:
  void Post(std::function<void()> action) {
    owner_.loop_.Post([alive = std::weak_ptr<bool>(alive_), action = std::move(action)] {
      if (!alive.expired()) {
        action();
      }
    });
  }

  // Lets OnDone come.
  void Break() {
    broken_ = true;
    ReleaseHold();
  }

  void ReleaseHold() {
    if (!std::exchange(released_, true)) {
      RemoveHold();
    }
  }

  OutputForwarder& owner_;
  std::unique_ptr<v1::Agents::Stub> stub_;
  grpc::ClientContext context_;
  // shared_ptr: closures that outlive this object in the loop's queue see that it is gone.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  v1::OutputAck ack_;
  v1::OutputChunk in_flight_;
  uint64_t next_ = 1;
  bool writing_ = false;
  bool closed_ = false;  // StartWritesDone was called.
  bool broken_ = false;
  bool released_ = false;
  // shared_ptr: setting it must not outlive it.
  std::shared_ptr<std::promise<void>> done_ = std::make_shared<std::promise<void>>();
};

OutputForwarder::OutputForwarder(Options options)
    : options_(std::move(options)), thread_([this] {
        ::pthread_setname_np(::pthread_self(), "output");
        loop_.Run();
      }) {}

OutputForwarder::~OutputForwarder() {
  loop_.Stop();
  thread_.join();
  stream_.reset();
}

void OutputForwarder::Connect(std::shared_ptr<grpc::Channel> channel) {
  loop_.Post([this, channel = std::move(channel)] {
    channel_ = channel;
    Open();
  });
}

void OutputForwarder::Open() {
  loop_.Cancel(retry_);
  if (dropping_) {
    return;
  }
  stream_.reset();
  stream_ = std::make_unique<Stream>(*this, channel_);
  stream_->WriteNext();
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
  chunk.set_host(options_.host);
  chunk.set_lines(std::move(lines));
  if (dropping_) {
    return;
  }
  bytes_ += chunk.lines().size();
  queue_.Push(std::move(chunk));
  if (stream_ != nullptr) {
    stream_->WriteNext();
  }
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
  if (paused_ || bytes_ < kOutputBytesMax) {
    return;
  }
  paused_ = true;
  for (const auto& [fd, source] : sources_) {
    loop_.Unwatch(fd);
  }
}

void OutputForwarder::ResumeIfRoom() {
  if (!paused_ || bytes_ > kOutputBytesMax / 2) {
    return;
  }
  paused_ = false;
  for (const auto& entry : sources_) {
    const int fd = entry.first;
    loop_.Watch(fd, EPOLLIN, [this, fd](uint32_t) { OnReadable(fd); });
  }
}

void OutputForwarder::OnAcknowledged(uint64_t received) {
  if (!queue_.Acknowledge(received)) {
    return;  // Never sent: not our driver's way, and harmless.
  }
  trouble_.clear();
  bytes_ = 0;
  for (const v1::OutputChunk& chunk : queue_.unacknowledged()) {
    bytes_ += chunk.lines().size();
  }
  if (flushing_ && !all_read_) {
    DrainSources();
  } else if (!flushing_) {
    ResumeIfRoom();
  }
}

void OutputForwarder::OnStreamDone(bool complete, const std::string& trouble) {
  stream_.reset();
  if (complete || !options_.resumable) {
    dropping_ = true;
    queue_ = {};
    bytes_ = 0;
  }
  if (!complete && trouble_ != trouble) {
    trouble_ = trouble;  // Once per change: it may be tried for minutes.
    spdlog::log(options_.resumable ? spdlog::level::info : spdlog::level::warn,
                "output of workers is {}: {}",
                options_.resumable ? "held back" : "no longer forwarded",
                trouble);
  }
  if (!dropping_) {
    // The session brings another channel if this one is broken. If only this stream was, nobody
    // else would notice, and the workers would wait with full pipes.
    retry_ = loop_.After(kRetryAfter, [this] { Open(); });
  }
  if (flushing_ && dropping_) {
    FinishFlush();
  } else if (!flushing_) {
    ResumeIfRoom();
  }
}

void OutputForwarder::Flush(Duration limit, std::function<void()> done) {
  loop_.Post([this, limit, done = std::move(done)] {
    flushing_ = true;
    flushed_ = done;
    if (dropping_) {
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
    if (bytes_ >= kOutputBytesMax) {
      return;  // OnAcknowledged goes on.
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
  all_read_ = true;
  if (stream_ != nullptr) {
    stream_->WriteNext();
  }
}

void OutputForwarder::FinishFlush() {
  if (flushed_) {
    std::exchange(flushed_, nullptr)();
  }
}

}  // namespace muster::launcher
