#pragma once

// The pieces of a fused buffer: cut into runs of a bounded size, and copied into and out of memory
// of our own where a run is not one piece. Bytes only; nothing here computes.
//
// Threads: a value.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

#include "worker/collective/backend.h"

namespace muster::worker {

inline size_t CountOf(std::span<const Piece> pieces) {
  size_t count = 0;
  for (const Piece& piece : pieces) {
    count += piece.count;
  }
  return count;
}

/// Copies the inputs, one behind the other, to `to`.
inline void Pack(std::span<const Piece> pieces, size_t element, void* to) {
  auto* at = static_cast<char*>(to);
  for (const Piece& piece : pieces) {
    const size_t bytes = piece.count * element;
    if (bytes > 0 && piece.in == nullptr) {
      std::memset(at, 0, bytes);
    } else if (bytes > 0 && piece.in != at) {
      std::memcpy(at, piece.in, bytes);
    }
    at += bytes;
  }
}

/// Copies from `from` to the outputs that are wanted.
inline void Unpack(const void* from, std::span<const Piece> pieces, size_t element) {
  const auto* at = static_cast<const char*>(from);
  for (const Piece& piece : pieces) {
    const size_t bytes = piece.count * element;
    if (bytes > 0 && piece.out != nullptr && piece.out != at) {
      std::memcpy(piece.out, at, bytes);
    }
    at += bytes;
  }
}

/// Walks along pieces in runs of at most `count_max` elements.
class PieceRuns {
 public:
  PieceRuns(std::span<const Piece> pieces, size_t element, size_t count_max)
      : pieces_(pieces), element_(element), count_max_(count_max) {}

  /// The next run, of pieces that are not empty; an empty run is the end.
  void Next(std::vector<Piece>& run) {
    run.clear();
    for (size_t room = count_max_; room > 0 && index_ < pieces_.size();) {
      const Piece& piece = pieces_[index_];
      const size_t count = std::min(room, piece.count - done_);
      if (count > 0) {
        run.push_back({At(piece.in), const_cast<void*>(At(piece.out)), count});
      }
      room -= count;
      done_ += count;
      if (done_ == piece.count) {
        ++index_;
        done_ = 0;
      }
    }
  }

 private:
  const void* At(const void* begin) const {
    return begin == nullptr ? nullptr : static_cast<const char*>(begin) + done_ * element_;
  }

  std::span<const Piece> pieces_;
  const size_t element_;
  const size_t count_max_;
  size_t index_ = 0;
  size_t done_ = 0;
};

}  // namespace muster::worker
