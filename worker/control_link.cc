#include "worker/control_link.h"

#include <sys/epoll.h>

#include <cstring>
#include <utility>

#include "common/check.h"

namespace muster::worker {
namespace {
constexpr size_t kHeaderBytes = sizeof(uint32_t);
constexpr size_t kReadBytes = 64u << 10;
}  // namespace

ControlLink::ControlLink(Loop& loop, PrivateFd fd) : loop_(loop), fd_(std::move(fd)) {
  interest_ = EPOLLRDHUP;
  loop_.Watch(fd_.get(), interest_, [this](uint32_t events) { OnEvents(events); });
}

ControlLink::~ControlLink() {
  Close();
}

void ControlLink::Start(Callbacks callbacks) {
  callbacks_ = std::move(callbacks);
  paused_ = false;
  UpdateInterest();
  Deliver();
}

void ControlLink::Pause() {
  paused_ = true;
  UpdateInterest();
}

void ControlLink::Close() {
  if (!closed()) {
    loop_.Unwatch(fd_.get());
    fd_.Reset();
  }
}

void ControlLink::Abort() {
  if (!closed()) {
    DiscardUnreceived(fd_.get());
    Close();
  }
}

void ControlLink::Break(const std::string& reason) {
  if (closed()) {
    return;
  }
  Close();
  // A copy: the owner may drop the callbacks in the call.
  const auto on_broken = callbacks_.on_broken;
  if (on_broken) {
    on_broken(reason);
  }
}

void ControlLink::OnEvents(uint32_t events) {
  if ((events & EPOLLOUT) != 0) {
    Write();
  }
  if (closed()) {
    return;
  }
  if (paused_) {
    if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
      Break("the connection was closed");
    }
    return;
  }
  if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
    Read();
  }
}

void ControlLink::Read() {
  const size_t used = in_.size();
  in_.resize(used + kReadBytes);
  const ssize_t count = ReadSome(fd_.get(), in_.data() + used, kReadBytes);
  in_.resize(used + static_cast<size_t>(std::max<ssize_t>(count, 0)));
  if (count < 0) {
    Break("the connection was closed");
    return;
  }
  Deliver();
}

void ControlLink::Deliver() {
  if (delivering_) {
    return;  // Started again inside a callback: the outer call goes on.
  }
  delivering_ = true;
  while (!paused_ && !closed() && in_.size() - in_start_ >= kHeaderBytes) {
    uint32_t size = 0;
    std::memcpy(&size, in_.data() + in_start_, kHeaderBytes);
    if (size > kFrameBytesMax) {
      Break("a frame of " + std::to_string(size) + " bytes was announced");
      break;
    }
    if (in_.size() - in_start_ - kHeaderBytes < size) {
      break;
    }
    const std::string_view frame(in_.data() + in_start_ + kHeaderBytes, size);
    in_start_ += kHeaderBytes + size;
    const auto on_frame = callbacks_.on_frame;
    on_frame(frame);
  }
  in_.erase(0, in_start_);
  in_start_ = 0;
  delivering_ = false;
}

void ControlLink::Send(std::string_view frame) {
  if (closed()) {
    return;  // Its end was, or is about to be, reported through on_broken.
  }
  MUSTER_CHECK(frame.size() <= kFrameBytesMax, "a frame that the peer would refuse");
  const auto size = static_cast<uint32_t>(frame.size());
  out_.append(reinterpret_cast<const char*>(&size), sizeof size);
  out_.append(frame);
  Write();
}

// A broken link is reported from the loop, not from inside Send, so that senders need not expect
// their own teardown in the middle of a loop over links.
void ControlLink::Write() {
  while (out_start_ < out_.size()) {
    const ssize_t count = WriteSome(fd_.get(), out_.data() + out_start_, out_.size() - out_start_);
    if (count <= 0) {
      break;  // Broken ones turn readable too, and are found there.
    }
    out_start_ += static_cast<size_t>(count);
  }
  if (out_start_ == out_.size()) {
    out_.clear();
    out_start_ = 0;
  } else if (out_.size() - out_start_ > kQueuedBytesMax) {
    ::shutdown(fd_.get(), SHUT_RDWR);
  }
  UpdateInterest();
}

void ControlLink::UpdateInterest() {
  if (closed()) {
    return;
  }
  uint32_t interest = EPOLLRDHUP;
  if (!paused_) {
    interest |= EPOLLIN;
  }
  if (!flushed()) {
    interest |= EPOLLOUT;
  }
  if (interest != interest_) {
    interest_ = interest;
    loop_.Modify(fd_.get(), interest);
  }
}

}  // namespace muster::worker
