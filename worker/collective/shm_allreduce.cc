#include "worker/collective/shm_allreduce.h"

#include <algorithm>

namespace muster::worker {
namespace {

constexpr size_t kLine = 64;
/// Up to here, times the ranks less one, reducing everything costs less than a second wait.
constexpr size_t kOneStepBytes = 64u << 10;
/// Below this average size, reducing piece by piece costs more than a copy.
constexpr size_t kSmallPieceBytes = 2048;
/// How far a rank runs ahead of what it has taken: what is given should still be in a cache.
constexpr uint64_t kAheadMax = SlotExchange::kSlotCount;

constexpr size_t RoundUp(size_t value, size_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

ShmAllreduce::ShmAllreduce(SlotExchange& exchange,
                           std::span<const Piece> pieces,
                           const kernels::ReducePlan& plan,
                           char* scratch)
    : exchange_(exchange),
      plan_(plan),
      element_bytes_(kernels::SizeOf(plan.type)),
      scratch_(scratch),
      give_(pieces, element_bytes_),
      reduce_(pieces, element_bytes_),
      take_(pieces, element_bytes_),
      inputs_(static_cast<size_t>(exchange.size())) {
  for (const Piece& piece : pieces) {
    total_ += piece.count;
  }
  small_pieces_ = pieces.size() > 1 && total_ * element_bytes_ < pieces.size() * kSmallPieceBytes;
  const size_t most = SlotExchange::kSlotBytes / element_bytes_;
  const size_t chunks = (total_ + most - 1) / most;
  if (chunks != 0) {
    chunk_ = std::min(most, RoundUp((total_ + chunks - 1) / chunks, kLine));
    steps_ = (total_ + chunk_ - 1) / chunk_;
  }
}

ShmAllreduce::Range ShmAllreduce::Chunk(uint64_t step) const {
  const size_t begin = static_cast<size_t>(step) * chunk_;
  return {begin, std::min(total_, begin + chunk_)};
}

ShmAllreduce::Range ShmAllreduce::Slice(uint64_t step, int index) const {
  const Range chunk = Chunk(step);
  const auto ranks = static_cast<size_t>(exchange_.size());
  const size_t each = RoundUp((chunk.end - chunk.begin + ranks - 1) / ranks, kLine);
  const size_t begin = std::min(chunk.end, chunk.begin + each * static_cast<size_t>(index));
  return {begin, std::min(chunk.end, begin + each)};
}

Status ShmAllreduce::Run() {
  const auto others = static_cast<size_t>(exchange_.size() - 1);
  if (total_ * element_bytes_ * others <= kOneStepBytes || exchange_.size() == 2) {
    return RunInOneStep();
  }
  return RunInTwoSteps();
}

bool ShmAllreduce::MayGive(uint64_t given, uint64_t taken) {
  return given < steps_ && given < taken + kAheadMax && exchange_.SlotFree(given);
}

// ---------------------------------------------------------------- one step

Status ShmAllreduce::RunInOneStep() {
  uint64_t given = 0;
  uint64_t taken = 0;
  const auto can_reduce = [&] {
    return taken < given && exchange_.AllHave(Mark::kGiven, taken + 1);
  };
  const auto missing = [&] {
    return taken < given ? exchange_.Lacking(Mark::kGiven, taken + 1) : exchange_.Holding(given);
  };
  while (taken < steps_ && !exchange_.aborted()) {
    if (can_reduce()) {
      ReduceAll(taken);
      exchange_.Publish(Mark::kTaken, ++taken, Wake::kLast);
    } else if (MayGive(given, taken)) {
      GiveAll(given);
      exchange_.Publish(Mark::kGiven, ++given, Wake::kLast);
    } else if (Status status = exchange_.WaitUntil(
                   [&] { return can_reduce() || MayGive(given, taken); }, missing);
               !status.ok()) {
      return status;
    }
  }
  return exchange_.aborted() ? SlotExchange::Aborted() : Status::Ok();
}

void ShmAllreduce::GiveAll(uint64_t step) {
  const Range chunk = Chunk(step);
  give_.CopyFrom(chunk.begin, chunk.end, exchange_.Slot(exchange_.self(), step));
  exchange_.LendToAll(step);
}

void ShmAllreduce::ReduceAll(uint64_t step) {
  const Range chunk = Chunk(step);
  const auto self = static_cast<size_t>(exchange_.self());
  const auto reduce = [&](const void* own, char* out, size_t at, size_t count) {
    const size_t offset = (at - chunk.begin) * element_bytes_;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      inputs_[i] = i == self ? own : exchange_.Slot(static_cast<int>(i), step) + offset;
    }
    kernels::ReduceMany(plan_, inputs_.data(), inputs_.size(), out, count);
  };
  if (small_pieces_) {
    reduce(exchange_.Slot(exchange_.self(), step), scratch_, chunk.begin, chunk.end - chunk.begin);
    take_.CopyTo(chunk.begin, chunk.end, scratch_);
    return;
  }
  reduce_.Over(chunk.begin, chunk.end, [&](const char* in, char* out, size_t at, size_t count) {
    if (out != nullptr) {
      reduce(in, out, at, count);
    }
  });
}

// ---------------------------------------------------------------- two steps

Status ShmAllreduce::RunInTwoSteps() {
  uint64_t given = 0;
  uint64_t reduced = 0;
  uint64_t taken = 0;
  const auto can_reduce = [&] {
    return reduced < given && exchange_.AllHave(Mark::kGiven, reduced + 1);
  };
  const auto can_take = [&] {
    return taken < reduced && exchange_.AllHave(Mark::kReduced, taken + 1);
  };
  // The earliest step that stands still: the others may wait for that one too.
  const auto missing = [&] {
    if (taken < reduced) {
      return exchange_.Lacking(Mark::kReduced, taken + 1);
    }
    return reduced < given ? exchange_.Lacking(Mark::kGiven, reduced + 1)
                           : exchange_.Holding(given);
  };
  while (taken < steps_ && !exchange_.aborted()) {
    if (can_reduce()) {
      ReduceSlice(reduced);
      ++reduced;
    } else if (can_take()) {
      TakeSlices(taken);
      exchange_.Publish(Mark::kTaken, ++taken, Wake::kLast);
    } else if (MayGive(given, taken)) {
      GiveSlices(given);
      exchange_.Publish(Mark::kGiven, ++given, Wake::kLast);
    } else if (Status status = exchange_.WaitUntil(
                   [&] { return can_reduce() || can_take() || MayGive(given, taken); }, missing);
               !status.ok()) {
      return status;
    }
  }
  return exchange_.aborted() ? SlotExchange::Aborted() : Status::Ok();
}

void ShmAllreduce::GiveSlices(uint64_t step) {
  const Range chunk = Chunk(step);
  char* slot = exchange_.Slot(exchange_.self(), step);
  for (int i = 0; i < exchange_.size(); ++i) {
    if (i != exchange_.self() || small_pieces_) {
      const Range slice = Slice(step, i);
      give_.CopyFrom(slice.begin, slice.end, slot + (slice.begin - chunk.begin) * element_bytes_);
    }
  }
  exchange_.LendToAll(step);
}

void ShmAllreduce::ReduceSlice(uint64_t step) {
  const Range chunk = Chunk(step);
  const Range slice = Slice(step, exchange_.self());
  const auto self = static_cast<size_t>(exchange_.self());
  const auto reduce = [&](const void* own, size_t at, size_t count) {
    const size_t offset = (at - chunk.begin) * element_bytes_;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      inputs_[i] = i == self ? own : exchange_.Slot(static_cast<int>(i), step) + offset;
    }
    char* out = exchange_.Slot(exchange_.self(), step) + offset;
    kernels::ReduceMany(plan_, inputs_.data(), inputs_.size(), out, count);
  };
  char* own_slot =
      exchange_.Slot(exchange_.self(), step) + (slice.begin - chunk.begin) * element_bytes_;
  if (small_pieces_) {
    reduce(own_slot, slice.begin, slice.end - slice.begin);
  } else {
    reduce_.Over(slice.begin, slice.end, [&](const char* in, char*, size_t at, size_t count) {
      reduce(in, at, count);
    });
  }
  exchange_.Publish(Mark::kReduced, step + 1, Wake::kLast);
  reduce_.CopyTo(slice.begin, slice.end, own_slot);
}

void ShmAllreduce::TakeSlices(uint64_t step) {
  const Range chunk = Chunk(step);
  for (int i = 0; i < exchange_.size(); ++i) {
    if (i != exchange_.self()) {
      const Range slice = Slice(step, i);
      take_.CopyTo(slice.begin,
                   slice.end,
                   exchange_.Slot(i, step) + (slice.begin - chunk.begin) * element_bytes_);
    }
  }
}

}  // namespace muster::worker
