#include "worker/shm/segment_client.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/worker_page.h"

namespace muster::worker {
namespace {

constexpr Duration kRetryDelay = std::chrono::milliseconds(5);
// One more than is right, so that a surplus one is seen and closed.
constexpr size_t kDescriptorsMax = 2;

struct Received {
  ssize_t size = -1;  // -1: errno says why.
  PageAnswer answer;
  UniqueFd memory;
  bool surplus = false;  // More descriptors, or more bytes, than belong to an answer.
};

Received ReceiveAnswer(int socket) {
  Received received;
  iovec part{&received.answer, sizeof received.answer};
  alignas(cmsghdr) char control[CMSG_SPACE(kDescriptorsMax * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  received.size = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (received.size < 0) {
    return received;
  }
  received.surplus = (message.msg_flags & MSG_TRUNC) != 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
      received.surplus |= received.memory.valid();
      received.memory.Reset(fd);
    }
  }
  received.answer.error[sizeof received.answer.error - 1] = '\0';
  return received;
}

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
  Received received = ReceiveAnswer(socket_.get());
  if (received.size < 0 && (errno == EAGAIN || errno == EINTR)) {
    return;
  }
  if (received.size < 0) {
    Finish(Status::Failed("the agent's answer at " + path_ + ": " + strerror(errno)));
  } else if (received.size != static_cast<ssize_t>(sizeof received.answer) || received.surplus) {
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
