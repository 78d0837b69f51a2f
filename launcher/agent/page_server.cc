#include "launcher/agent/page_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/log.h"
#include "common/process.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // Linux 6.5; Debian 12's headers are older.
#endif

namespace muster::launcher {
namespace {

constexpr int kBacklog = 512;
constexpr Duration kAcceptRetry = std::chrono::milliseconds(100);

Status Failure(const std::string& what) {
  return Status::Failed(what + ": " + strerror(errno));
}

// 0: it has none here.
pid_t PidOf(int fd) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 ? credentials.pid : 0;
}

// The kernel's own pidfd of the peer, where it has one: a number could already be another's.
Result<PageClient> ClientOf(int fd) {
  PageClient client;
  client.pid = PidOf(fd);
  if (client.pid <= 0) {
    return Status::Failed("the agent cannot see the pid of the worker: are both in one container?");
  }
  int pidfd = -1;
  socklen_t size = sizeof pidfd;
  client.pidfd = ::getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) == 0
                     ? UniqueFd(pidfd)
                     : OpenPidfd(client.pid);
  if (!client.pidfd.valid()) {
    return Status::Failed("the worker has already ended");
  }
  return client;
}

/// `memory`: goes along; -1: none.
void Answer(int fd, const std::string& error, int memory) {
  PageAnswer answer;
  std::strncpy(answer.error, error.c_str(), sizeof answer.error - 1);
  iovec part{&answer, sizeof answer};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (memory >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &memory, sizeof memory);
  }
  if (::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    spdlog::warn("a worker did not take the answer about its memory: {}", strerror(errno));
  }
}

}  // namespace

bool PageClient::HasEnded() const {
  pollfd entry{pidfd.get(), POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1;
}

void PageClient::Signal(int signal) const {
  ::syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0U);
}

bool PageClient::TellOver(uint64_t generation, const std::string& reason) const {
  GenerationOver over{generation};
  std::strncpy(over.reason, reason.c_str(), sizeof over.reason - 1);
  return connection.valid() &&
         ::send(connection.get(), &over, sizeof over, MSG_DONTWAIT | MSG_NOSIGNAL) ==
             static_cast<ssize_t>(sizeof over);
}

PageServer::PageServer(Loop& loop, Ask ask, AskSegment ask_segment)
    : loop_(loop), ask_(std::move(ask)), ask_segment_(std::move(ask_segment)) {}

PageServer::~PageServer() {
  while (!connections_.empty()) {
    Close(connections_.begin()->first);
  }
  loop_.Cancel(retry_);
  if (listener_.valid()) {
    loop_.Unwatch(listener_.get());
  }
}

Status PageServer::Start(const std::string& socket_path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_path.size() >= sizeof address.sun_path) {
    return Status::Invalid("the name of the socket is too long: " + socket_path);
  }
  std::memcpy(address.sun_path, socket_path.c_str(), socket_path.size() + 1);
  listener_ = UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_.valid() ||
      ::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener_.get(), kBacklog) != 0) {
    return Failure("cannot listen on " + socket_path);
  }
  Listen();
  return Status::Ok();
}

void PageServer::Listen() {
  loop_.Watch(listener_.get(), EPOLLIN, [this](uint32_t) { Accept(); });
}

void PageServer::Accept() {
  UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      // The waiting connection would wake the loop again at once, for as long as this lasts.
      spdlog::error("a worker has to wait for its page: {}", strerror(errno));
      loop_.Unwatch(listener_.get());
      retry_ = loop_.After(kAcceptRetry, [this] { Listen(); });
    }
    return;
  }
  if (connections_.size() >= kConnectionsMax) {
    Answer(fd.get(), "too many processes ask for a page at once", -1);
    return;
  }
  const int number = fd.get();
  loop_.Watch(number, EPOLLIN, [this, number](uint32_t) { Serve(number); });
  const Loop::TimerId deadline = loop_.After(kHandshakeDeadline, [this, number] { Close(number); });
  connections_[number] = Connection{std::move(fd), deadline};
}

void PageServer::Serve(int fd) {
  static_assert(sizeof(PageRequest) < sizeof(SegmentRequest));
  alignas(SegmentRequest) char bytes[sizeof(SegmentRequest)];
  const ssize_t got = ::recv(fd, bytes, sizeof bytes, MSG_DONTWAIT | MSG_TRUNC);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    return;
  }
  if (got <= 0 || connections_.at(fd).waits) {
    Close(fd);  // It went, or said more than one request.
    return;
  }
  if (got == sizeof(PageRequest)) {
    PageRequest request;
    std::memcpy(&request, bytes, sizeof request);
    ServePage(fd, request);
    return;
  }
  SegmentRequest request;
  if (got == sizeof request && std::memcmp(bytes, request.magic, sizeof request.magic) == 0) {
    std::memcpy(&request, bytes, sizeof request);
    ServeSegment(fd, request);
    return;
  }
  Answer(fd, "this is no request for a page; are agent and worker of one version?", -1);
  Close(fd);
}

void PageServer::ServePage(int fd, const PageRequest& request) {
  Result<PageClient> client = ClientOf(fd);
  if (client.ok()) {
    client.value().connection.Reset(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  }
  const std::string_view key(request.key, sizeof request.key);
  const Result<std::shared_ptr<SharedPage>> page =
      client.ok() ? ask_({request.incarnation}, key, std::move(client).value())
                  : Result<std::shared_ptr<SharedPage>>(client.status());
  Answer(fd, page.status().message(), page.ok() ? page.value()->fd() : -1);
  Close(fd);
}

void PageServer::ServeSegment(int fd, const SegmentRequest& request) {
  Connection& connection = connections_.at(fd);
  connection.waits = true;
  const uint64_t serial = connection.deadline.value;
  ask_segment_(
      {
          .worker = {request.incarnation},
          .key = {request.key, sizeof request.key},
          .pid = PidOf(fd),
          .generation = request.generation,
      },
      [this, alive = std::weak_ptr<bool>(alive_), fd, serial](const Result<int>& segment) {
        if (alive.expired()) {
          return;
        }
        const auto it = connections_.find(fd);
        if (it != connections_.end() && it->second.deadline.value == serial) {
          Answer(fd, segment.status().message(), segment.ok() ? segment.value() : -1);
          Close(fd);
        }
      });
}

void PageServer::Close(int fd) {
  const auto it = connections_.find(fd);
  if (it != connections_.end()) {
    loop_.Cancel(it->second.deadline);
    loop_.Unwatch(fd);
    connections_.erase(it);
  }
}

}  // namespace muster::launcher
