#include "worker/link_dialer.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/check.h"

namespace muster::worker {
namespace {
constexpr std::chrono::milliseconds kFirstBackOff{5};
constexpr std::chrono::milliseconds kLongestBackOff{200};
}  // namespace

LinkDialer::LinkDialer(
    Loop& loop, LinkId id, std::string key, std::vector<std::string> addresses, Callbacks callbacks)
    : loop_(loop),
      id_(id),
      key_(std::move(key)),
      addresses_(std::move(addresses)),
      callbacks_(std::move(callbacks)),
      back_off_(kFirstBackOff),
      handshake_(key_, id_, FreshNonce()) {}

LinkDialer::~LinkDialer() {
  loop_.Cancel(timer_);
  CloseSocket();
}

void LinkDialer::Start() {
  MUSTER_CHECK(phase_ == Phase::kIdle && !addresses_.empty(), "a dialer starts once, at something");
  Try();
}

void LinkDialer::CloseSocket() {
  if (fd_.valid()) {
    loop_.Unwatch(fd_.get());
    fd_.Reset();
  }
}

void LinkDialer::Try() {
  const std::string& literal = addresses_[next_address_];
  next_address_ = (next_address_ + 1) % addresses_.size();
  const Result<SocketAddress> address = ParseAddress(literal);
  if (!address.ok()) {
    Fail(address.status().message(), true);
    return;
  }
  Result<PrivateFd> fd = StartConnect(address.value());
  if (!fd.ok()) {
    Fail(fd.status().message(), errno == ECONNREFUSED);
    return;
  }
  fd_ = std::move(fd).value();
  phase_ = Phase::kConnecting;
  handshake_.Renew(FreshNonce());
  in_.clear();
  loop_.Watch(fd_.get(), EPOLLOUT, [this](uint32_t) { OnEvents(); });
  timer_ = loop_.After(kHandshakeTimeout, [this] { Fail("no answer within a second", false); });
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
    Fail(strerror(error), error == ECONNREFUSED);
    return;
  }
  const std::string hello = handshake_.Hello();
  if (WriteSome(fd_.get(), hello.data(), hello.size()) != static_cast<ssize_t>(hello.size())) {
    Fail("the connection was closed", false);
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
    Fail("the connection was closed", false);
    return;
  }
  if (in_.size() < HandshakeInitiator::kAnswerBytes) {
    return;
  }
  const Result<std::string> proof = handshake_.Finish(in_);
  if (!proof.ok()) {
    Fail(proof.status().message(), false);
    return;
  }
  if (WriteSome(fd_.get(), proof.value().data(), proof.value().size()) !=
      static_cast<ssize_t>(proof.value().size())) {
    Fail("the connection was closed", false);
    return;
  }
  loop_.Cancel(timer_);
  loop_.Unwatch(fd_.get());
  phase_ = Phase::kDone;
  const auto on_link = std::move(callbacks_.on_link);
  on_link(std::move(fd_));  // May destroy this.
}

// A silent or closing peer may only be late with the news of this generation; one whose port is
// closed is worth a word to the launcher. Either way the next try follows.
void LinkDialer::Fail(const std::string& evidence, bool refused) {
  loop_.Cancel(timer_);
  CloseSocket();
  phase_ = Phase::kIdle;
  refused_in_round_ = refused ? refused_in_round_ + 1 : 0;
  timer_ = loop_.After(back_off_, [this] { Try(); });
  back_off_ = std::min<Duration>(2 * back_off_, kLongestBackOff);
  if (refused_in_round_ >= addresses_.size() && !refusal_reported_) {
    refusal_reported_ = true;
    const auto on_refused = callbacks_.on_refused;
    on_refused(evidence);  // May destroy this.
  }
}

}  // namespace muster::worker
