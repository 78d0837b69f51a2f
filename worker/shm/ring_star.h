#pragma once

// RingStar: the control star inside one host: a ring each way between the first member, who
// coordinates, and every other. It carries the frames of the control links; who closes, and who has
// to be called because nobody looks, is told by the sockets.
//
// Threads: one at a time, except HasInput, which the driving thread calls at any time.

#include <atomic>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "worker/shm/segment.h"

namespace muster::worker {

class RingStar {
 public:
  /// `segment` outlives it.
  RingStar(const Segment& segment, int self);

  /// Whether there is a ring between the two.
  bool Reaches(int member) const { return member >= 0 && member < members() && ends_[member]; }
  int members() const { return static_cast<int>(ends_.size()); }

  /// Queues a frame and wakes the member, if it sleeps. With `call`, or if the ring is full: true
  /// if nobody is there who would read it, and the caller has to call somebody by other means.
  [[nodiscard]] bool Send(int member, std::string_view frame, bool call);

  bool HasInput() const;
  /// Delivers what has come in, and moves on what waits for room. kInvalid, and the member in
  /// `broken`: it broke the rules.
  using Deliver = std::function<void(int member, std::string_view frame)>;
  Status Move(const Deliver& deliver, int& broken);
  /// The member broke the rules: nothing more is heard of it.
  void Close(int member) {
    if (ends_[member]) {
      ends_[member]->closed.store(true, std::memory_order_relaxed);
    }
  }
  bool flushed() const;
  size_t queued_bytes(int member) const { return ends_[member]->out.queued_bytes(); }

 private:
  struct End {
    RingWriter out;
    RingReader in;
    Bell bell;  // The other member's.
    std::atomic<bool> closed{false};
  };
  std::vector<std::unique_ptr<End>> ends_;  // By member; null: no ring.
};

}  // namespace muster::worker
