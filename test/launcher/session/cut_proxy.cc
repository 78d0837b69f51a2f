#include "test/launcher/session/cut_proxy.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <future>
#include <set>

#include "common/address.h"
#include "common/network.h"

namespace muster::test {

CutProxy::CutProxy(std::string target)
    : target_(std::move(target)), listener_(ListenInRange("127.0.0.1", {}).value()) {
  SocketAddress own;
  own.size = sizeof own.storage;
  ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&own.storage), &own.size);
  address_ = ToLiteral(own);
  loop_.Watch(listener_.get(), EPOLLIN, [this](uint32_t) { OnListener(); });
  thread_ = std::jthread([this] { loop_.Run(); });
}

CutProxy::~CutProxy() {
  loop_.Stop();
  thread_.join();
}

void CutProxy::OnListener() {
  auto pair = std::make_shared<Pair>();
  pair->near.Reset(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const SocketAddress to = ParseAddress(target_).value();
  pair->far.Reset(::socket(to.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(pair->far.get(), reinterpret_cast<const sockaddr*>(&to.storage), to.size) != 0) {
    return;
  }
  ++connections_;
  for (const int fd : {pair->near.get(), pair->far.get()}) {
    pairs_[fd] = pair;
    loop_.Watch(fd, EPOLLIN, [this, fd](uint32_t) { Pump(fd); });
  }
  SwallowNow();
}

void CutProxy::Pump(int from) {
  const std::shared_ptr<Pair> pair = pairs_.at(from);
  const int to = from == pair->near.get() ? pair->far.get() : pair->near.get();
  std::array<char, 65536> bytes;
  const ssize_t got = ::read(from, bytes.data(), bytes.size());
  if (got <= 0 || ::send(to, bytes.data(), static_cast<size_t>(got), MSG_NOSIGNAL) != got) {
    Close(from);
  }
}

void CutProxy::Close(int fd) {
  const std::shared_ptr<Pair> pair = pairs_.at(fd);
  for (const int each : {pair->near.get(), pair->far.get()}) {
    loop_.Unwatch(each);
    pairs_.erase(each);
  }
}

void CutProxy::Cut() {
  std::promise<void> done;
  loop_.Post([&] {
    while (!pairs_.empty()) {
      Close(pairs_.begin()->first);
    }
    done.set_value();
  });
  done.get_future().wait();
}

void CutProxy::Swallow(bool swallow) {
  std::promise<void> done;
  loop_.Post([&] {
    swallow_ = swallow;
    SwallowNow();
    done.set_value();
  });
  done.get_future().wait();
}

void CutProxy::SwallowAnswers(bool swallow) {
  std::promise<void> done;
  loop_.Post([&] {
    swallow_answers_ = swallow;
    SwallowNow();
    done.set_value();
  });
  done.get_future().wait();
}

void CutProxy::SwallowNow() {
  for (const auto& [fd, pair] : pairs_) {
    const bool silent = swallow_ || (swallow_answers_ && fd == pair->far.get());
    loop_.Modify(fd, silent ? 0U : uint32_t{EPOLLIN});
  }
}

}  // namespace muster::test
