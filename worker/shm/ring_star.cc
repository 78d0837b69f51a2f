#include "worker/shm/ring_star.h"

#include <algorithm>

#include "worker/control_link.h"

namespace muster::worker {

RingStar::RingStar(const Segment& segment, int self) {
  ends_.resize(static_cast<size_t>(segment.members()));
  const size_t frame_max = ControlLink::kFrameBytesMax;
  for (int member = 0; member < segment.members(); ++member) {
    if (member == self || (self != 0 && member != 0)) {
      continue;
    }
    const RingMemory up = segment.to_first(self == 0 ? member : self);
    const RingMemory down = segment.from_first(self == 0 ? member : self);
    // In place: a reader cannot be moved.
    ends_[static_cast<size_t>(member)].reset(new End{RingWriter(self == 0 ? down : up),
                                                     RingReader(self == 0 ? up : down, frame_max),
                                                     Bell(segment.bell(member))});
  }
}

bool RingStar::Send(int member, std::string_view frame, bool call) {
  End& end = *ends_[static_cast<size_t>(member)];
  end.out.Write(frame);
  // What does not fit must be read soon, too, whoever is away.
  if (call || !end.out.flushed()) {
    return end.bell.RingOrCall();
  }
  end.bell.Ring();
  return false;
}

bool RingStar::HasInput() const {
  return std::any_of(ends_.begin(), ends_.end(), [](const auto& end) {
    return end && !end->closed.load(std::memory_order_relaxed) && end->in.HasBytes();
  });
}

Status RingStar::Move(const Deliver& deliver, int& broken) {
  for (int member = 0; member < members(); ++member) {
    End* end = ends_[static_cast<size_t>(member)].get();
    if (end == nullptr) {
      continue;
    }
    while (!end->closed.load(std::memory_order_relaxed)) {
      const Result<std::string_view> frame = end->in.Read();
      if (!frame.ok()) {
        broken = member;
        return frame.status();
      }
      if (frame.value().data() == nullptr) {
        break;
      }
      deliver(member, frame.value());
    }
    const bool moved = end->out.Flush();
    if (end->in.WriterWaits() || moved) {
      end->bell.Ring();
    }
  }
  return Status::Ok();
}

bool RingStar::flushed() const {
  return std::all_of(
      ends_.begin(), ends_.end(), [](const auto& end) { return !end || end->out.flushed(); });
}

}  // namespace muster::worker
