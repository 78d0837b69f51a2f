#include "worker/collective/slot_exchange.h"

#include <algorithm>
#include <string>

#include "common/check.h"
#include "worker/shm/fence.h"

namespace muster::worker {
SlotExchange::SlotExchange(std::shared_ptr<Segment> segment, Ranks ranks, int self)
    : segment_(std::move(segment)),
      ranks_(std::move(ranks)),
      member_(self),
      patience_(PatienceFor(segment_->members())),
      bell_(segment_->bell(self)),
      lent_(kSlotCount * ranks_.size()) {
  MUSTER_CHECK_EQ(ranks_.size(), static_cast<size_t>(segment_->members()));
}

void SlotExchange::Begin(const OpContext& context) {
  MUSTER_CHECK(context.number >> 63 == 0, "a number of 63 bits");
  number_ = context.number;
  deadline_ = context.deadline;
  self_ = context.group.self;
  if (context.group.ranks != group_) {
    SetGroup(context.group.ranks);
  }
  MUSTER_CHECK_EQ(peers_.at(static_cast<size_t>(self_)), member_);
  // Those who still ask for the operation before last find the number of the last one, or this one.
  column_ ^= 1;
  SlotMarks& marks = MarksOf(member_);
  for (std::atomic<uint64_t>& steps : marks.steps[column_]) {
    steps.store(0, std::memory_order_release);
  }
  marks.number_and_column.store(number_ << 1 | column_, std::memory_order_release);
}

void SlotExchange::SetGroup(const Ranks& ranks) {
  group_ = ranks;
  peers_.clear();
  for (const int rank : group_) {
    const auto at = std::find(ranks_.begin(), ranks_.end(), rank);
    MUSTER_CHECK(at != ranks_.end(), "rank " + std::to_string(rank) + " is on another host");
    peers_.push_back(static_cast<int>(at - ranks_.begin()));
  }
}

// ---------------------------------------------------------------- slots

bool SlotExchange::SlotFree(uint64_t step) {
  Place* lent = lent_.data() + SlotIndex(step) * ranks_.size();
  for (size_t member = 0; member < ranks_.size(); ++member) {
    if (!Passed(static_cast<int>(member), Mark::kTaken, lent[member])) {
      return false;
    }
    lent[member] = {};
  }
  return true;
}

void SlotExchange::Lend(uint64_t step, int index) {
  const auto member = static_cast<size_t>(peers_[static_cast<size_t>(index)]);
  lent_[SlotIndex(step) * ranks_.size() + member] = {number_, step + 1};
}

void SlotExchange::LendToAll(uint64_t step) {
  for (int i = 0; i < size(); ++i) {
    if (i != self_) {
      Lend(step, i);
    }
  }
}

SlotExchange::Ranks SlotExchange::Holding(uint64_t step) const {
  const Place* lent = lent_.data() + SlotIndex(step) * ranks_.size();
  Ranks holding;
  for (size_t member = 0; member < ranks_.size(); ++member) {
    if (!Passed(static_cast<int>(member), Mark::kTaken, lent[member])) {
      holding.push_back(ranks_[member]);
    }
  }
  return holding;
}

// ---------------------------------------------------------------- marks

// A number that is read twice around the steps says that they are of its operation: before a column
// is used again, the number has changed.
bool SlotExchange::Passed(int member, Mark mark, const Place& place) const {
  if (place.steps == 0) {
    return true;
  }
  const SlotMarks& marks = MarksOf(member);
  uint64_t seen = marks.number_and_column.load(std::memory_order_acquire);
  for (;;) {
    const uint64_t number = seen >> 1;
    if (number != place.number) {
      return number > place.number;
    }
    const auto& steps = marks.steps[seen & 1][static_cast<size_t>(mark)];
    if (steps.load(std::memory_order_acquire) >= place.steps) {
      return true;
    }
    const uint64_t again = marks.number_and_column.load(std::memory_order_acquire);
    if (again == seen) {
      return false;
    }
    seen = again;
  }
}

bool SlotExchange::AllHave(Mark mark, uint64_t steps) const {
  for (int i = 0; i < size(); ++i) {
    if (i != self_ && !Has(mark, i, steps)) {
      return false;
    }
  }
  return true;
}

SlotExchange::Ranks SlotExchange::Lacking(Mark mark, uint64_t steps) const {
  Ranks lacking;
  for (int i = 0; i < size(); ++i) {
    if (i != self_ && !Has(mark, i, steps)) {
      lacking.push_back(group_[static_cast<size_t>(i)]);
    }
  }
  return lacking;
}

void SlotExchange::Publish(Mark mark, uint64_t steps, Wake wake) {
  MarksOf(member_).steps[column_][static_cast<size_t>(mark)].store(steps,
                                                                   std::memory_order_release);
  Ring(mark, steps, wake);
}

// With kLast: who waits for all to have so many cannot go on while a third rank lacks it; that rank
// will wake then. If two are last at the same time, one of them sees the other, by the fence.
void SlotExchange::Ring(Mark mark, uint64_t steps, Wake wake) {
  FullFence();
  int without = -1;
  if (wake == Wake::kLast) {
    for (const int peer : peers_) {
      if (peer == member_ || Passed(peer, mark, {number_, steps})) {
        continue;
      }
      if (without >= 0) {
        return;
      }
      without = peer;
    }
  }
  for (const int peer : peers_) {
    if (peer != member_ && (without < 0 || peer == without)) {
      Bell(segment_->bell(peer)).RingAfterFence();
    }
  }
}

// ---------------------------------------------------------------- ends

void SlotExchange::Abort() {
  aborted_.store(true, std::memory_order_seq_cst);
  Bell(segment_->bell(member_)).Ring();
}

Status SlotExchange::Aborted() {
  return {StatusCode::kAborted, "the generation was revoked"};
}

Status SlotExchange::Late(Ranks missing) {
  suspects_ = std::move(missing);
  std::string names;
  for (const int rank : suspects_) {
    names += (names.empty() ? "" : ", ") + std::to_string(rank);
  }
  return {StatusCode::kTimeout,
          "rank " + std::to_string(ranks_[static_cast<size_t>(member_)]) +
              " waited in vain for rank " + names + " in shared memory"};
}

}  // namespace muster::worker
