#include "worker/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <set>

#include "common/mutex.h"

namespace muster::worker {
namespace {

/// The descriptors to close in forked children. Never destroyed: atfork handlers outlive statics.
struct PrivateFds {
  Mutex mutex;
  std::set<int> fds MUSTER_GUARDED_BY(mutex);

  static PrivateFds& Get() {
    static auto* instance = new PrivateFds;
    [[maybe_unused]] static const int registered = ::pthread_atfork(&Before, &InParent, &InChild);
    return *instance;
  }
  // The lock is held over the fork, so that the child finds the set whole.
  static void Before() MUSTER_NO_THREAD_SAFETY_ANALYSIS { Get().mutex.lock(); }
  static void InParent() MUSTER_NO_THREAD_SAFETY_ANALYSIS { Get().mutex.unlock(); }
  static void InChild() MUSTER_NO_THREAD_SAFETY_ANALYSIS {
    PrivateFds& self = Get();
    for (const int fd : self.fds) {
      ::close(fd);
    }
    self.fds.clear();
    self.mutex.unlock();
  }
};

}  // namespace

PrivateFd::PrivateFd(int fd) : fd_(fd) {
  if (fd >= 0) {
    PrivateFds& all = PrivateFds::Get();
    const MutexLock lock(all.mutex);
    all.fds.insert(fd);
  }
}

PrivateFd& PrivateFd::operator=(PrivateFd&& other) noexcept {
  if (this != &other) {
    Reset();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

// In a forked child the descriptor is closed already, and its number may be the user's by now.
void PrivateFd::Reset() {
  const int fd = std::exchange(fd_, -1);
  if (fd < 0) {
    return;
  }
  PrivateFds& all = PrivateFds::Get();
  const MutexLock lock(all.mutex);
  if (all.fds.erase(fd) == 1) {
    ::close(fd);
  }
}

void DiscardUnreceived(int fd) {
  const linger now{1, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

// A range without a free port is an error, not a reason to look elsewhere.
Result<PrivateFd> ListenOnLoopback(PortRange ports) {
  Result<UniqueFd> v4 = ListenInRange("127.0.0.1", ports);
  if (v4.ok()) {
    return PrivateFd(v4.value().Release());
  }
  if (v4.status().code() == StatusCode::kUnavailable) {
    return v4.status();
  }
  Result<UniqueFd> v6 = ListenInRange("::1", ports);
  return v6.ok() ? Result(PrivateFd(v6.value().Release())) : v4.status();
}

Result<std::string> LocalAddress(int fd) {
  SocketAddress address;
  address.size = sizeof address.storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.size) != 0) {
    return Status::Failed("getsockname: " + ErrorText(errno));
  }
  return ToLiteral(address);
}

Result<PrivateFd> StartConnect(const SocketAddress& address, int* error) {
  const auto fail = [&](const char* call) {
    const int code = errno;
    if (error != nullptr) {
      *error = code;
    }
    return Status(StatusCode::kUnavailable,
                  std::string(call) + " to " + ToLiteral(address) + ": " + ErrorText(code));
  };
  PrivateFd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) {
    return fail("socket");
  }
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.size) != 0 &&
      errno != EINPROGRESS) {
    return fail("connect");
  }
  return fd;
}

int ConnectError(int fd) {
  int error = 0;
  socklen_t size = sizeof error;
  return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

Result<PrivateFd> Accept(int listener, int* error) {
  PrivateFd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) {
    const int code = errno;
    if (error != nullptr) {
      *error = code;
    }
    return Status(StatusCode::kUnavailable, "accept: " + ErrorText(code));
  }
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

ssize_t ReadSome(int fd, void* data, size_t size) {
  const ssize_t count = ::recv(fd, data, size, 0);
  if (count > 0) {
    return count;
  }
  const bool later = count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  return later ? 0 : -1;
}

ssize_t WriteSome(int fd, const void* data, size_t size) {
  const ssize_t count = ::send(fd, data, size, MSG_NOSIGNAL);
  if (count >= 0) {
    return count;
  }
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
}

}  // namespace muster::worker
