#include "worker/elastic_transfer.h"

#include <algorithm>
#include <cstring>

namespace muster::worker {
namespace {

// Large enough that the cost per operation vanishes, small enough that several fit in the window
// of a large tensor and that no transport's 32-bit sizes are met.
constexpr size_t kChunkBytes = size_t{64} << 20;

Tensor Bytes(void* data, size_t size) {
  return {.data = data, .dtype = DType::kU8, .shape = {static_cast<int64_t>(size)}};
}

std::vector<std::string> SplitTexts(std::string_view bytes, int ranks) {
  std::vector<std::string> texts;
  for (int rank = 0; rank < ranks; ++rank) {
    uint64_t size = 0;
    if (bytes.size() < sizeof size) {
      throw Error("elastic::State: what rank " + std::to_string(rank) + " sent does not parse");
    }
    std::memcpy(&size, bytes.data(), sizeof size);
    bytes.remove_prefix(sizeof size);
    if (bytes.size() < size) {
      throw Error("elastic::State: what rank " + std::to_string(rank) + " sent does not parse");
    }
    texts.emplace_back(bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
  return texts;
}

}  // namespace

std::vector<std::string> GatherTexts(Runtime& runtime,
                                     const std::string& name,
                                     std::string_view text) {
  const uint64_t size = text.size();
  std::string mine(reinterpret_cast<const char*>(&size), sizeof size);
  mine += text;
  std::string all;
  Submission submission;
  submission.kind = OpKind::kAllgather;
  submission.name = name;
  submission.in = Bytes(mine.data(), mine.size());
  submission.allocate = [&all](const Shape& shape, DType, const Device&) -> void* {
    all.resize(static_cast<size_t>(shape.at(0)));
    return all.data();
  };
  runtime.Submit(std::move(submission)).wait();
  return SplitTexts(all, runtime.place().size);
}

void Broadcasts::Add(void* data, size_t size) {
  auto* bytes = static_cast<std::byte*>(data);
  try {
    for (size_t at = 0; at < size; at += kChunkBytes) {
      AddChunk(bytes + at, std::min(kChunkBytes, size - at));
    }
  } catch (...) {
    Settle();
    throw;
  }
  bytes_ += size;
}

void Broadcasts::AddChunk(std::byte* data, size_t size) {
  const size_t place = next_++ % kWindow;
  if (under_way_[place]) {
    under_way_[place] = false;  // wait() returns or throws once the operation is over.
    handles_[place].wait();
  }
  Submission submission;
  submission.kind = OpKind::kBroadcast;
  submission.name = name_ + "." + std::to_string(place);
  submission.in = Bytes(data, size);
  submission.out = submission.in;
  submission.root = root_;
  handles_[place] = runtime_.Submit(std::move(submission));
  under_way_[place] = true;
}

void Broadcasts::Finish() {
  try {
    // The oldest first: next_ is the place that would be used again.
    for (size_t i = 0; i < kWindow; ++i) {
      const size_t place = (next_ + i) % kWindow;
      if (under_way_[place]) {
        under_way_[place] = false;
        handles_[place].wait();
      }
    }
  } catch (...) {
    Settle();
    throw;
  }
}

void Broadcasts::Settle() {
  // One has failed, and with it the generation or, on every rank, this sequence of operations: the
  // rest ends too. What they met says no more than the first failure, which the caller rethrows.
  for (size_t place = 0; place < kWindow; ++place) {
    if (under_way_[place]) {
      under_way_[place] = false;
      try {
        handles_[place].wait();
      } catch (const Error&) {
        continue;
      }
    }
  }
}

std::string BroadcastText(Runtime& runtime, const std::string& name, int root, std::string text) {
  uint64_t size = text.size();
  Broadcasts length(runtime, name + ".size", root);
  length.Add(&size, sizeof size);
  length.Finish();
  if (size > kTextBytesMax) {  // On every rank alike, the root included.
    throw Error("elastic::State: rank " + std::to_string(root) + " has " + std::to_string(size) +
                " bytes of values beside its tensors; " + std::to_string(kTextBytesMax) +
                " are allowed");
  }
  text.resize(size);
  Broadcasts body(runtime, name, root);
  body.Add(text.data(), text.size());
  body.Finish();
  return text;
}

}  // namespace muster::worker
