#include "worker/shm/segment_client.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/worker_page.h"
#include "worker/page_answer.h"

namespace muster::worker {
namespace {

constexpr Duration kRetryDelay = std::chrono::milliseconds(5);
}  // namespace

SegmentClient::SegmentClient(Loop& loop,
                             const std::string& directory,
                             uint64_t incarnation,
                             const std::string& key,
                             uint64_t generation,
                             Done done,
                             Duration deadline)
    : loop_(loop), path_(directory + "/" + kPageSocketName), done_(std::move(done)) {
  request_.incarnation = incarnation;
  request_.generation = generation;
  std::copy_n(key.data(), std::min(key.size(), sizeof request_.key), request_.key);
  deadline_ = loop_.After(deadline, [this] {
    Finish(Status(StatusCode::kTimeout, "the agent does not answer at " + path_));
  });
  next_ = loop_.After(Duration::zero(), [this] { Connect(); });
}

SegmentClient::~SegmentClient() {
  StopWaiting();
}

void SegmentClient::Connect() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path_.size() >= sizeof address.sun_path) {
    Finish(Status::Failed("the path is too long: " + path_));
    return;
  }
  std::copy(path_.begin(), path_.end(), address.sun_path);
  socket_.Reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket_.valid() ||
      ::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::send(socket_.get(), &request_, sizeof request_, MSG_NOSIGNAL | MSG_DONTWAIT) !=
          static_cast<ssize_t>(sizeof request_)) {
    // A queue that is full is no error yet: there is no event for its end.
    if (errno == EAGAIN || errno == EINTR) {
      Retry();
    } else {
      Finish(Status::Failed("the agent does not answer at " + path_ + ": " + strerror(errno)));
    }
    return;
  }
  watched_ = true;
  loop_.Watch(socket_.get(), EPOLLIN, [this](uint32_t) { Receive(); });
}

void SegmentClient::Retry() {
  socket_.Reset();
  next_ = loop_.After(kRetryDelay, [this] { Connect(); });
}

void SegmentClient::Receive() {
  ReceivedAnswer received = ReceiveAnswer(socket_.get());
  if (received.size < 0 && (errno == EAGAIN || errno == EINTR)) {
    return;
  }
  if (received.size < 0) {
    Finish(Status::Failed("the agent's answer at " + path_ + ": " + strerror(errno)));
  } else if (!received.well_formed()) {
    Finish(Status::Failed("the agent's answer at " + path_ + " is not of this version"));
  } else if (received.answer.error[0] != '\0') {
    Finish(
        Status::Failed("the agent gives no shared memory: " + std::string(received.answer.error)));
  } else if (!received.memory.valid()) {
    // The kernel drops a descriptor for which this process has no room.
    Finish(Status::Failed("the agent's shared memory did not arrive: too many open files?"));
  } else {
    Finish(std::move(received.memory));
  }
}

void SegmentClient::Finish(Result<UniqueFd> result) {
  StopWaiting();
  const Done done = std::exchange(done_, nullptr);
  done(std::move(result));  // May destroy this object.
}

void SegmentClient::StopWaiting() {
  if (std::exchange(watched_, false)) {
    loop_.Unwatch(socket_.get());
  }
  socket_.Reset();
  loop_.Cancel(deadline_);
  loop_.Cancel(next_);
}

}  // namespace muster::worker
