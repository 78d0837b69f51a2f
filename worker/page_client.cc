#include "worker/page_client.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/unique_fd.h"

namespace muster::worker {
namespace {

Status Unanswered(const std::string& path, const std::string& why) {
  return Status::Failed("the agent does not answer at " + path + ": " + why +
                        " (MUSTER_AGENT_DIRECTORY says that this process is a worker of a job; "
                        "unset it to run alone)");
}

Result<UniqueFd> ConnectTo(const std::string& path, std::chrono::milliseconds timeout) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (!fd.valid() || path.size() >= sizeof address.sun_path) {
    return Unanswered(path, fd.valid() ? "the path is too long" : strerror(errno));
  }
  std::copy(path.begin(), path.end(), address.sun_path);
  const timeval limit{timeout.count() / 1000, (timeout.count() % 1000) * 1000};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return Unanswered(path, strerror(errno));
  }
  return fd;
}

/// The answer, with the descriptor that may come along.
ssize_t ReceiveAnswer(int socket, PageAnswer& answer, UniqueFd& memory) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec part{&answer, sizeof answer};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t size = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (size > 0 && header != nullptr && header->cmsg_level == SOL_SOCKET &&
      header->cmsg_type == SCM_RIGHTS) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    memory.Reset(fd);
  }
  return size;
}

}  // namespace

Result<std::unique_ptr<PageClient>> PageClient::Connect(const std::string& directory,
                                                        uint64_t incarnation,
                                                        const std::string& key,
                                                        std::chrono::milliseconds timeout) {
  const std::string path = directory + "/" + kPageSocketName;
  Result<UniqueFd> socket = ConnectTo(path, timeout);
  if (!socket.ok()) {
    return socket.status();
  }
  PageRequest request;
  request.incarnation = incarnation;
  std::copy_n(key.data(), std::min(key.size(), sizeof request.key), request.key);
  if (::send(socket.value().get(), &request, sizeof request, MSG_NOSIGNAL) !=
      static_cast<ssize_t>(sizeof request)) {
    return Unanswered(path, strerror(errno));
  }
  PageAnswer answer;
  UniqueFd memory;
  const ssize_t size = ReceiveAnswer(socket.value().get(), answer, memory);
  if (size != static_cast<ssize_t>(sizeof answer)) {
    return Unanswered(path, size < 0 ? strerror(errno) : "the answer is cut short");
  }
  answer.error[sizeof answer.error - 1] = '\0';
  if (answer.error[0] != '\0') {
    return Status::Failed("the agent refused this worker: " + std::string(answer.error));
  }
  void* page =
      memory.valid()
          ? ::mmap(nullptr, kWorkerPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0)
          : MAP_FAILED;
  if (page == MAP_FAILED) {
    return Unanswered(path, "it sent no page");
  }
  ::madvise(page, kWorkerPageBytes, MADV_DONTFORK);
  return std::unique_ptr<PageClient>(new PageClient(static_cast<WorkerPage*>(page)));
}

PageClient::~PageClient() {
  ::munmap(page_, kWorkerPageBytes);
}

Status PageClient::Lock() {
  const int error = ::pthread_mutex_trylock(&page_->alive);
  return error == 0
             ? Status::Ok()
             : Status::Failed("the page of this worker is taken: " + std::string(strerror(error)));
}

void PageClient::Tick() {
  page_->ticks.fetch_add(1, std::memory_order_relaxed);
}

void PageClient::Unlock() {
  ::pthread_mutex_unlock(&page_->alive);
}

}  // namespace muster::worker
