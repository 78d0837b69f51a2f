#include "worker/page_client.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/unique_fd.h"
#include "worker/page_answer.h"

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
  const ReceivedAnswer received = ReceiveAnswer(socket.value().get());
  if (!received.well_formed()) {
    return Unanswered(path,
                      received.size < 0 ? strerror(errno) : "the answer is not of this version");
  }
  if (received.answer.error[0] != '\0') {
    return Status::Failed("the agent refused this worker: " + std::string(received.answer.error));
  }
  const int memory = received.memory.get();
  void* page =
      received.memory.valid()
          ? ::mmap(nullptr, kWorkerPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0)
          : MAP_FAILED;
  if (page == MAP_FAILED) {
    return Unanswered(path, "it sent no page");
  }
  ::madvise(page, kWorkerPageBytes, MADV_DONTFORK);
  return std::unique_ptr<PageClient>(
      new PageClient(static_cast<WorkerPage*>(page), PrivateFd(socket.value().Release())));
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

Result<GenerationOver> PageClient::Read() {
  GenerationOver over;
  const ssize_t got = ::recv(connection_.get(), &over, sizeof over, MSG_DONTWAIT | MSG_TRUNC);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
    return Status(StatusCode::kUnavailable, "nothing is said");
  }
  if (got != static_cast<ssize_t>(sizeof over)) {
    return Status::Failed("the agent has closed the connection, or is of another version");
  }
  over.reason[sizeof over.reason - 1] = '\0';
  return over;
}

}  // namespace muster::worker
