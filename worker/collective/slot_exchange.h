#pragma once

// SlotExchange: how the workers of one host hand each other chunks of bytes, without a lock and
// without a barrier, so that a rank may be killed at any instruction and a fast one may run ahead.
//
// Each member owns a ring of slots in shared memory, which only it writes, and marks, which say how
// far it is: its step t is *given* (its slot may be read), *reduced* (the results in it too) and
// *taken* (it has read what it wants of the others' slots). Marks belong to the operation whose
// number stands beside them; a member that is in a later operation has passed all marks of an
// earlier one. A slot is written again once all who may still read it have taken it, by their
// marks, in whichever operation and with whichever other partners they may be by then. What the
// steps mean, and what lies where in a slot, is the operations' business.
//
// Threads: one at a time; Abort from any.

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "worker/collective/backend.h"
#include "worker/shm/bell.h"
#include "worker/shm/segment.h"

namespace muster::worker {

enum class Mark : uint8_t { kGiven, kReduced, kTaken };
inline constexpr size_t kMarkCount = 3;

/// How far a member is, in the segment; zeroed at first. Only the member writes.
struct SlotMarks {
  /// The number of the operation, and in the lowest bit which of the two columns of steps it uses.
  /// The other one is of the operation before, and may still be read.
  alignas(64) std::atomic<uint64_t> number_and_column;
  std::array<std::array<std::atomic<uint64_t>, kMarkCount>, 2> steps;
};
static_assert(sizeof(SlotMarks) <= kSegmentMarkBytes);

/// Who has to be woken by a mark.
enum class Wake : uint8_t {
  kAnyone,  // Somebody may wait for this rank alone.
  kLast,    // Whoever waits, waits for all others: the last of them wakes.
};

class SlotExchange {
 public:
  static constexpr size_t kSlotCount = 8;
  static constexpr size_t kSlotBytes = kSegmentDataBytes / kSlotCount;
  using Ranks = std::vector<int>;

  /// `ranks`: the members' ranks in the world, by index in the segment; `self` is such an index.
  SlotExchange(std::shared_ptr<Segment> segment, Ranks ranks, int self);

  /// Everything below is about this operation.
  void Begin(const OpContext& context);

  int size() const { return static_cast<int>(peers_.size()); }
  int self() const { return self_; }

  /// Of the member with this index in the group.
  char* Slot(int index, uint64_t step) const {
    return segment_->data(peers_[static_cast<size_t>(index)]) + SlotIndex(step) * kSlotBytes;
  }
  /// True if nobody reads any more what this rank's slot holds.
  bool SlotFree(uint64_t step);
  /// From now on the slot is in use until the member has taken the step.
  void Lend(uint64_t step, int index);
  void LendToAll(uint64_t step);

  bool Has(Mark mark, int index, uint64_t steps) const {
    return Passed(peers_[static_cast<size_t>(index)], mark, {number_, steps});
  }
  /// All but this rank.
  bool AllHave(Mark mark, uint64_t steps) const;
  /// This rank has done so many steps: what it wrote before is seen by whoever sees the mark.
  void Publish(Mark mark, uint64_t steps, Wake wake);

  /// Waits for `ready()`. At the deadline `missing()` gives the members that are waited for.
  template <class Ready, class Missing>
  Status WaitUntil(const Ready& ready, const Missing& missing) {
    if (!aborted() && ready()) {
      return Status::Ok();
    }
    const bool in_time = bell_.Wait(patience_, deadline_, [&] { return aborted() || ready(); });
    if (aborted()) {
      return Aborted();
    }
    return in_time ? Status::Ok() : Late(missing());
  }
  /// Ranks of the world without the mark, or that still hold the slot.
  Ranks Lacking(Mark mark, uint64_t steps) const;
  Ranks Holding(uint64_t step) const;

  void Abort();
  bool aborted() const { return aborted_.load(std::memory_order_relaxed); }
  static Status Aborted();
  const Ranks& suspects() const { return suspects_; }

 private:
  /// So many steps of an operation.
  struct Place {
    uint64_t number = 0;
    uint64_t steps = 0;  // 0: passed by everyone.
  };

  size_t SlotIndex(uint64_t step) const {
    return static_cast<size_t>((number_ + step) % kSlotCount);
  }
  SlotMarks& MarksOf(int member) const {
    return *reinterpret_cast<SlotMarks*>(segment_->marks(member));
  }
  void SetGroup(const Ranks& ranks);
  /// True if the member has done so many steps of that operation.
  bool Passed(int member, Mark mark, const Place& place) const;
  void Ring(Mark mark, uint64_t steps, Wake wake);
  Status Late(Ranks missing);

  const std::shared_ptr<Segment> segment_;  // Shared with the links of the session.
  const Ranks ranks_;
  const int member_;
  const Patience patience_;
  Bell bell_;
  std::atomic<bool> aborted_{false};
  Ranks suspects_;

  // The operation under way.
  Ranks group_;             // Of the world, as `peers_` was made from it.
  std::vector<int> peers_;  // Members of the segment, by index in the group.
  int self_ = 0;
  uint64_t number_ = 0;
  Bell::Deadline deadline_;

  size_t column_ = 0;

  // By slot, then by member: what it has to have taken before the slot is free.
  std::vector<Place> lent_;
};

}  // namespace muster::worker
