#pragma once

// PieceWalk: the elements of a fused buffer's pieces as if they lay one behind the other. Only
// forwards, so that a walk over all of them is linear in their number. It copies between them and
// contiguous memory; it computes nothing.
//
// Threads: one at a time.

#include <algorithm>
#include <cstring>
#include <span>

#include "worker/collective/backend.h"
#include "worker/shm/copy.h"

namespace muster::worker {

class PieceWalk {
 public:
  /// The pieces outlive the walk. `element_bytes`: of one element.
  PieceWalk(std::span<const Piece> pieces, size_t element_bytes)
      : pieces_(pieces), element_bytes_(element_bytes) {}

  /// Calls `visit(in, out, begin of the part, its count)` for each part of a piece that lies in
  /// [begin, end). `in` and `out` point at the part, or are null as in the piece. Never visits
  /// before where the last call began.
  template <class Visit>
  void Over(size_t begin, size_t end, const Visit& visit) {
    while (index_ < pieces_.size() && start_ + pieces_[index_].count <= begin) {
      start_ += pieces_[index_++].count;
    }
    size_t index = index_;
    size_t start = start_;
    for (size_t at = begin; at < end; start += pieces_[index++].count) {
      const Piece& piece = pieces_[index];
      const size_t stop = std::min(end, start + piece.count);
      if (stop > at) {
        visit(At(piece.in, at - start), At(piece.out, at - start), at, stop - at);
        at = stop;
      }
    }
  }

  void CopyFrom(size_t begin, size_t end, char* to) {
    Over(begin, end, [&](const char* in, const char*, size_t at, size_t count) {
      char* target = to + (at - begin) * element_bytes_;
      if (in == nullptr) {
        std::memset(target, 0, count * element_bytes_);
      } else {
        CopyBytes(target, in, count * element_bytes_);
      }
    });
  }

  void CopyTo(size_t begin, size_t end, const char* from) {
    Over(begin, end, [&](const char*, char* out, size_t at, size_t count) {
      if (out != nullptr) {
        CopyBytes(out, from + (at - begin) * element_bytes_, count * element_bytes_);
      }
    });
  }

 private:
  const char* At(const void* base, size_t element) const {
    return base == nullptr ? nullptr : static_cast<const char*>(base) + element * element_bytes_;
  }
  char* At(void* base, size_t element) const {
    return base == nullptr ? nullptr : static_cast<char*>(base) + element * element_bytes_;
  }

  const std::span<const Piece> pieces_;
  const size_t element_bytes_;
  size_t index_ = 0;  // The piece where the last call began, and its first element.
  size_t start_ = 0;
};

}  // namespace muster::worker
