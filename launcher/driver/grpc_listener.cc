#include "launcher/driver/grpc_listener.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/log.h"

namespace muster::launcher {
namespace {

// A flood of connections must not hold up the loop.
constexpr int kAcceptsPerTurn = 32;
constexpr Duration kPauseWithoutDescriptors = std::chrono::milliseconds(100);
constexpr uint64_t kOpenFilesMax = uint64_t{1} << 20;

uint64_t OpenFilesLimit() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : kOpenFilesMax;
}

}  // namespace

int GrpcListener::FirstReserved(uint64_t open_files) {
  return static_cast<int>(std::min(open_files, kOpenFilesMax) / 2);
}

GrpcListener::GrpcListener(Loop& loop, UniqueFd listener, std::unique_ptr<Acceptor> acceptor)
    : loop_(loop), listener_(std::move(listener)), acceptor_(std::move(acceptor)) {
  loop_.Watch(listener_.get(), EPOLLIN, [this](uint32_t) { OnListener(); });
}

GrpcListener::~GrpcListener() {
  loop_.Cancel(pause_);
  loop_.Unwatch(listener_.get());
}

void GrpcListener::OnListener() {
  for (int i = 0; i < kAcceptsPerTurn && AcceptOne(); ++i) {
  }
}

bool GrpcListener::AcceptOne() {
  UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
      Pause();
      return false;
    }
    return errno == EINTR || errno == ECONNABORTED;
  }
  if (fd.get() >= FirstReserved(OpenFilesLimit())) {
    if (!std::exchange(warned_, true)) {
      spdlog::warn("too many connections to the driver: new ones are closed until others end");
    }
    return true;
  }
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  Acceptor::NewConnectionParameters connection;
  connection.listener_fd = listener_.get();
  connection.fd = fd.Release();
  acceptor_->HandleNewConnection(&connection);
  return true;
}

// The connection stays in the kernel's queue and would wake the loop again at once.
void GrpcListener::Pause() {
  loop_.Modify(listener_.get(), 0);
  pause_ =
      loop_.After(kPauseWithoutDescriptors, [this] { loop_.Modify(listener_.get(), EPOLLIN); });
}

}  // namespace muster::launcher
