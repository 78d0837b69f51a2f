#pragma once

// ReplayQueue: the sending half of a session that outlives its connections. Messages are numbered
// from 1 and kept until the other side says that it has them; on a new connection, what is left is
// sent again. ReplayFilter is the receiving half: it passes each message once.
//
// Pure: no I/O, no clock. Threads: one at a time.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

namespace muster::launcher {

template <class Message>
class ReplayQueue {
 public:
  /// Numbers the message and keeps it; gives it back to be sent.
  const Message& Push(Message message) {
    message.set_sequence(++last_);
    kept_.push_back(std::move(message));
    return kept_.back();
  }

  /// The other side has all messages up to this number. False: it cannot have, since they were
  /// never sent.
  [[nodiscard]] bool Acknowledge(uint64_t received) {
    if (received > last_) {
      return false;
    }
    while (!kept_.empty() && kept_.front().sequence() <= received) {
      kept_.pop_front();
    }
    return true;
  }

  /// Null if there is none with this number, or none any more.
  const Message* Find(uint64_t sequence) const {
    const bool kept = !kept_.empty() && sequence >= kept_.front().sequence() && sequence <= last_;
    return kept ? &kept_[static_cast<size_t>(sequence - kept_.front().sequence())] : nullptr;
  }

  /// In order: what is to be sent again on a new connection.
  const std::deque<Message>& unacknowledged() const { return kept_; }
  size_t size() const { return kept_.size(); }
  /// The number of the oldest one that is kept, or else of the next one.
  uint64_t first() const { return kept_.empty() ? last_ + 1 : kept_.front().sequence(); }
  uint64_t last() const { return last_; }

 private:
  std::deque<Message> kept_;
  uint64_t last_ = 0;
};

class ReplayFilter {
 public:
  enum class Verdict : uint8_t {
    kNew,     // Take it.
    kRepeat,  // Known already: drop it.
    kGap,     // Something before it is missing: the connection is of no use.
  };

  Verdict Judge(uint64_t sequence) const {
    if (sequence <= received_) {
      return Verdict::kRepeat;
    }
    return sequence == received_ + 1 ? Verdict::kNew : Verdict::kGap;
  }
  /// A kNew one was taken.
  void Take() { ++received_; }

  uint64_t received() const { return received_; }

 private:
  uint64_t received_ = 0;
};

}  // namespace muster::launcher
