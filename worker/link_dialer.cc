#include "worker/link_dialer.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "common/check.h"

namespace muster::worker {
namespace {

constexpr std::chrono::milliseconds kFirstBackOff{5};
constexpr std::chrono::milliseconds kLongestBackOff{200};
constexpr size_t kFullLimitAddresses = 4;

// A round over all addresses takes no longer than one over four, however many there are.
LinkDialer::Limits LimitsFor(LinkDialer::Limits limits, size_t address_count) {
  if (address_count > kFullLimitAddresses) {
    limits.address = limits.address * kFullLimitAddresses / address_count;
  }
  return limits;
}

// This host has no way there; that says nothing of the peer.
bool IsMissingRoute(int error) {
  return error == ENETUNREACH || error == EAFNOSUPPORT || error == EADDRNOTAVAIL;
}

std::string SecondsText(Duration time) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(time).count());
  return text;
}

}  // namespace

std::vector<std::string> WorthDialling(const std::vector<std::string>& addresses) {
  std::vector<std::string> routable;
  std::copy_if(addresses.begin(),
               addresses.end(),
               std::back_inserter(routable),
               [](const std::string& address) { return !IsLoopbackAddress(address); });
  return routable.empty() ? addresses : routable;
}

LinkDialer::LinkDialer(Loop& loop,
                       LinkId id,
                       std::string key,
                       std::vector<std::string> addresses,
                       Callbacks callbacks,
                       Limits limits)
    : loop_(loop),
      id_(id),
      key_(std::move(key)),
      addresses_(std::move(addresses)),
      limits_(LimitsFor(limits, addresses_.size())),
      callbacks_(std::move(callbacks)),
      outcomes_(addresses_.size()),
      back_off_(kFirstBackOff),
      handshake_(key_, id_, FreshNonce()) {}

LinkDialer::~LinkDialer() {
  loop_.Cancel(timer_);
  CloseSocket();
}

void LinkDialer::Start() {
  MUSTER_CHECK(phase_ == Phase::kIdle && !addresses_.empty(), "a dialer starts once, at something");
  start_ = loop_.Now();
  Try();
}

void LinkDialer::CloseSocket() {
  if (fd_.valid()) {
    loop_.Unwatch(fd_.get());
    fd_.Reset();
  }
}

void LinkDialer::Try() {
  const Result<SocketAddress> address = ParseAddress(addresses_[current_]);
  if (!address.ok()) {
    return Fail(address.status().message(), ENETUNREACH);
  }
  int error = 0;
  Result<PrivateFd> fd = StartConnect(address.value(), &error);
  if (!fd.ok()) {
    return Fail(ErrorText(error), error);
  }
  fd_ = std::move(fd).value();
  phase_ = Phase::kConnecting;
  handshake_.Renew(FreshNonce());
  in_.clear();
  loop_.Watch(fd_.get(), EPOLLOUT, [this](uint32_t) { OnEvents(); });
  timer_ = loop_.After(limits_.address, [this] { OnTimeout(); });
}

void LinkDialer::OnTimeout() {
  const std::string what = ErrorText(ETIMEDOUT) + " after " + SecondsText(limits_.address);
  Fail(phase_ == Phase::kConnecting ? what : "connected, but no answer to the handshake: " + what);
}

void LinkDialer::OnEvents() {
  if (phase_ == Phase::kConnecting) {
    OnConnected();
  } else if (phase_ == Phase::kAwaitingAnswer) {
    OnAnswer();
  }
}

void LinkDialer::OnConnected() {
  const int error = ConnectError(fd_.get());
  if (error != 0) {
    Fail(ErrorText(error), error);
    return;
  }
  const std::string hello = handshake_.Hello();
  if (WriteSome(fd_.get(), hello.data(), hello.size()) != static_cast<ssize_t>(hello.size())) {
    Fail("the connection was closed");
    return;
  }
  phase_ = Phase::kAwaitingAnswer;
  loop_.Modify(fd_.get(), EPOLLIN);
}

void LinkDialer::OnAnswer() {
  const size_t used = in_.size();
  in_.resize(HandshakeInitiator::kAnswerBytes);
  const ssize_t count = ReadSome(fd_.get(), in_.data() + used, in_.size() - used);
  in_.resize(used + static_cast<size_t>(std::max<ssize_t>(count, 0)));
  if (count < 0) {
    Fail("the connection was closed");
    return;
  }
  if (in_.size() < HandshakeInitiator::kAnswerBytes) {
    return;
  }
  const Result<std::string> proof = handshake_.Finish(in_);
  if (!proof.ok()) {
    Fail(proof.status().message());
    return;
  }
  if (WriteSome(fd_.get(), proof.value().data(), proof.value().size()) !=
      static_cast<ssize_t>(proof.value().size())) {
    Fail("the connection was closed");
    return;
  }
  loop_.Cancel(timer_);
  loop_.Unwatch(fd_.get());
  phase_ = Phase::kDone;
  const auto on_link = std::move(callbacks_.on_link);
  on_link(std::move(fd_));  // May destroy this.
}

// A silent or closing peer may only be late with the news of this generation, and a lost packet is
// sent again: neither is worth a word before the patience is over. A closed port is, at once.
void LinkDialer::Fail(const std::string& what, int error) {
  loop_.Cancel(timer_);
  CloseSocket();
  phase_ = Phase::kIdle;
  outcomes_[current_] = what;
  any_refused_ = any_refused_ || error == ECONNREFUSED;
  any_silent_ = any_silent_ || (error != ECONNREFUSED && !IsMissingRoute(error));
  current_ = (current_ + 1) % addresses_.size();
  if (current_ != 0) {
    timer_ = loop_.After(Duration::zero(), [this] { Try(); });
    return;
  }
  timer_ = loop_.After(back_off_, [this] { Try(); });
  back_off_ = std::min<Duration>(2 * back_off_, kLongestBackOff);
  const bool refused = any_refused_ && !any_silent_;
  any_refused_ = false;
  any_silent_ = false;
  if (!reported_ && (refused || loop_.Now() - start_ >= limits_.patience)) {
    reported_ = true;
    const auto on_unreachable = callbacks_.on_unreachable;
    on_unreachable({Evidence(), refused});  // May destroy this.
  }
}

std::string LinkDialer::Evidence() const {
  std::string text = "rank " + std::to_string(id_.from) + " has no " +
                     (id_.kind == LinkKind::kControl ? "control" : "data") + " link to rank " +
                     std::to_string(id_.to) + " after " + SecondsText(loop_.Now() - start_) +
                     " (limit " + SecondsText(limits_.patience) + "): ";
  for (size_t i = 0; i < addresses_.size(); ++i) {
    text += (i == 0 ? "" : "; ") + addresses_[i] + ": " + outcomes_[i];
  }
  return text;
}

}  // namespace muster::worker
