#include "launcher/agent/address_prober.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/address.h"

namespace muster::launcher {

AddressProber::AddressProber(Loop& loop, std::vector<std::string> literals, Callbacks callbacks)
    : loop_(loop), literals_(std::move(literals)), callbacks_(std::move(callbacks)) {}

AddressProber::~AddressProber() {
  loop_.Cancel(timer_);
  for (const auto& [fd, attempt] : attempts_) {
    loop_.Unwatch(fd);
  }
}

void AddressProber::Start() {
  for (const std::string& literal : literals_) {
    Connect(literal);
  }
  // By a timer even if nothing is left to wait for: no callback comes inside Start.
  const Duration limit = attempts_.empty() ? Duration::zero() : kDeadline;
  timer_ = loop_.After(limit, [this] {
    for (const auto& [fd, attempt] : attempts_) {
      Fail(attempt.literal, ETIMEDOUT);
      loop_.Unwatch(fd);
    }
    attempts_.clear();
    Finish();
  });
}

// Of copies, since whoever hears it may destroy this.
void AddressProber::Finish() {
  const std::string why = why_;
  const auto done = callbacks_.done;
  done(why);
}

void AddressProber::Connect(const std::string& literal) {
  const Result<SocketAddress> address = ParseAddress(literal);
  if (!address.ok()) {
    Fail(literal, EINVAL);
    return;
  }
  const SocketAddress& to = address.value();
  UniqueFd fd(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid() ||
      (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to.storage), to.size) != 0 &&
       errno != EINPROGRESS)) {
    Fail(literal, errno);
    return;
  }
  const int number = fd.get();
  attempts_[number] = {std::move(fd), literal};
  loop_.Watch(number, EPOLLOUT, [this, number](uint32_t) { OnConnected(number); });
}

void AddressProber::OnConnected(int fd) {
  const Attempt attempt = std::move(attempts_.at(fd));
  attempts_.erase(fd);
  loop_.Unwatch(fd);
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  SocketAddress own;
  own.size = sizeof own.storage;
  if (error == 0 && ::getsockname(fd, reinterpret_cast<sockaddr*>(&own.storage), &own.size) != 0) {
    error = errno;
  }
  if (attempts_.empty()) {
    loop_.Cancel(timer_);
    timer_ = loop_.After(Duration::zero(), [this] { Finish(); });
  }
  if (error != 0) {
    Fail(attempt.literal, error);
    return;
  }
  if (Result<HostAndPort> split = SplitAddress(ToLiteral(own)); split.ok()) {
    const auto reached = callbacks_.reached;
    reached({attempt.literal, split.value().host});  // May destroy this.
  }
}

void AddressProber::Fail(const std::string& literal, int error) {
  if (why_.empty()) {
    why_ = literal + ": " + strerror(error);
  }
}

}  // namespace muster::launcher
