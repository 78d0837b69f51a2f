#include "bench/buffers.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <new>

namespace muster::bench {
namespace {

constexpr size_t kPeriod = 1024;
constexpr size_t kPageBytes = 4096;
// Expected values for every phase are a window of this table.
using Table = std::array<float, 2 * kPeriod>;

size_t Phase(size_t rank, size_t salt) {
  return (37 * rank + 11 * salt) % kPeriod;
}

const Table& Identity() {
  static const Table table = [] {
    Table values{};
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(i % kPeriod);
    }
    return values;
  }();
  return table;
}

// The sum over all ranks at element i, which has the same period.
Table SumOver(size_t size, size_t salt) {
  Table sum{};
  for (size_t rank = 0; rank < size; ++rank) {
    for (size_t i = 0; i < sum.size(); ++i) {
      sum[i] += Identity()[(i + Phase(rank, salt)) % kPeriod];
    }
  }
  return sum;
}

void FillFrom(float* out, size_t count, const Table& table, size_t phase) {
  for (size_t done = 0; done < count; done += kPeriod) {
    std::memcpy(out + done, table.data() + phase, std::min(kPeriod, count - done) * sizeof(float));
  }
}

// Empty, or the first element that is not table[(i + phase) mod the period].
std::string Compare(const float* result, size_t count, const Table& table, size_t phase) {
  for (size_t done = 0; done < count; done += kPeriod) {
    const size_t some = std::min(kPeriod, count - done);
    const float* expected = table.data() + phase;
    if (std::memcmp(result + done, expected, some * sizeof(float)) == 0) {
      continue;
    }
    for (size_t i = 0; i < some; ++i) {
      if (result[done + i] != expected[i]) {
        return "element " + std::to_string(done + i) + " of " + std::to_string(count) + " is " +
               std::to_string(result[done + i]) + " and not " + std::to_string(expected[i]);
      }
    }
  }
  return {};
}

}  // namespace

Layout LayoutOf(Operation operation, size_t bytes, int size) {
  const size_t floats = std::max<size_t>(1, bytes / sizeof(float));
  const size_t ranks = static_cast<size_t>(size);
  const size_t part = std::max<size_t>(1, floats / ranks);
  switch (operation) {
    case Operation::kAllgather:
      return {.in = part, .out = part * ranks, .part = part};
    case Operation::kAlltoall:
      return {.in = part * ranks, .out = part * ranks, .part = part};
    case Operation::kReducescatter:
      return {.in = part * ranks, .out = part, .part = part};
    case Operation::kAllreduce:
    case Operation::kBroadcast:
      break;
  }
  return {.in = floats, .out = floats, .part = floats};
}

Buffers::Buffers(const Order& order, int rank, int size)
    : operation_(order.operation),
      offset_(order.offset),
      rank_(rank),
      size_(size),
      layout_(LayoutOf(order.operation, order.bytes, size)) {
  // Back to back a sum in place would be added to itself.
  const bool in_place = operation_ == Operation::kBroadcast ||
                        (operation_ == Operation::kAllreduce && order.pace == Pace::kBarrier);
  for (int i = 0; i < order.tensors; ++i) {
    TensorMemory tensor;
    tensor.in = Allocate(layout_.in);
    tensor.out = in_place ? tensor.in : Allocate(layout_.out);
    tensors_.push_back(tensor);
  }
}

float* Buffers::Allocate(size_t floats) {
  const size_t bytes = offset_ + floats * sizeof(float);
  const size_t pages = (bytes + kPageBytes - 1) / kPageBytes;
  memory_.emplace_back(static_cast<char*>(std::aligned_alloc(kPageBytes, pages * kPageBytes)));
  if (memory_.back() == nullptr) {
    throw std::bad_alloc();
  }
  return reinterpret_cast<float*>(memory_.back().get() + offset_);
}

void Buffers::LeaveResultsInInput() {
  for (TensorMemory& tensor : tensors_) {
    tensor.out = tensor.in;
  }
}

void Buffers::Fill(size_t salt) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const TensorMemory& tensor = tensors_[i];
    // The root of a broadcast is rank 0; the others hold what nobody expects.
    if (operation_ == Operation::kBroadcast && rank_ != 0) {
      std::fill_n(tensor.in, layout_.in, -1.0F);
      continue;
    }
    FillFrom(tensor.in, layout_.in, Identity(), Phase(static_cast<size_t>(rank_), salt + i));
    if (tensor.out != tensor.in) {
      std::fill_n(tensor.out, layout_.out, std::numeric_limits<float>::quiet_NaN());
    }
  }
}

std::string Buffers::MistakeIn(const float* result, size_t tensor, size_t salt) const {
  const size_t own = static_cast<size_t>(rank_);
  const size_t ranks = static_cast<size_t>(size_);
  const auto by_source = [&](size_t first) -> std::string {
    for (size_t source = 0; source < ranks; ++source) {
      const std::string mistake = Compare(result + source * layout_.part,
                                          layout_.part,
                                          Identity(),
                                          (first + Phase(source, salt + tensor)) % kPeriod);
      if (!mistake.empty()) {
        return "of what came from rank " + std::to_string(source) + ", " + mistake;
      }
    }
    return {};
  };
  switch (operation_) {
    case Operation::kAllreduce:
      return Compare(result, layout_.out, SumOver(ranks, salt + tensor), 0);
    case Operation::kBroadcast:
      return Compare(result, layout_.out, Identity(), Phase(0, salt + tensor));
    case Operation::kAllgather:
      return by_source(0);
    case Operation::kAlltoall:
      return by_source(own * layout_.part);
    case Operation::kReducescatter:
      return Compare(
          result, layout_.out, SumOver(ranks, salt + tensor), own * layout_.part % kPeriod);
  }
  return "the operation is not known";
}

std::string Buffers::Mistake(size_t salt) const {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const std::string mistake = MistakeIn(tensors_[i].out, i, salt);
    if (!mistake.empty()) {
      return "a wrong result in tensor " + std::to_string(i) + ": " + mistake;
    }
  }
  return {};
}

}  // namespace muster::bench
