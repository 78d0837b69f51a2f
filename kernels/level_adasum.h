#pragma once

// Adasum's combination of two vectors, of one level. Included by level_kernels.h; levels.h says
// what may not be used here.
//
// Pure functions. Inputs and outputs may be equal, and need no alignment.

#include "kernels/level_fold.h"

namespace muster::kernels::MUSTER_LEVEL_NAMESPACE {
namespace {

/// A dot product is summed in this many lanes, element i in lane i mod 8, whatever the vectors of
/// the level; then the lanes pairwise. So all levels round alike.
inline constexpr size_t kDotLanes = 8;
inline constexpr size_t kDotVectors = kDotLanes * sizeof(double) / kVectorBytes;
/// Elements of each vector that are widened to double at a time.
inline constexpr size_t kAdasumPiece = 256;

class DotProduct {
 public:
  /// `count` is a multiple of kDotLanes.
  void Add(const double* a, const double* b, size_t count) {
    constexpr size_t kLanes = kVectorBytes / sizeof(double);
    for (size_t i = 0; i < count; i += kDotLanes) {
      for (size_t k = 0; k < kDotVectors; ++k) {
        const size_t at = i + k * kLanes;
        sums_[k] += LoadVector<double>(reinterpret_cast<const uint8_t*>(a + at)) *
                    LoadVector<double>(reinterpret_cast<const uint8_t*>(b + at));
      }
    }
  }

  double Value() const {
    double lanes[kDotLanes];
    __builtin_memcpy(lanes, sums_, sizeof lanes);
    for (size_t distance = kDotLanes / 2; distance > 0; distance /= 2) {
      for (size_t i = 0; i < distance; ++i) {
        lanes[i] += lanes[i + distance];
      }
    }
    return lanes[0];
  }

 private:
  Vector<double> sums_[kDotVectors] = {};
};

/// Elements to double, zeros up to the end of the piece. f16 and bf16 by way of float, exactly.
template <class Stored>
void LoadDoubles(const uint8_t* in, double* out, size_t count) {
  using Lane = typename Stored::Lane;
  alignas(64) Lane lanes[kAdasumPiece] = {};
  RunFold<Stored, Sum, Pass::kStart, 1, Scaling::kNone>(
      &in, reinterpret_cast<uint8_t*>(lanes), count, {1, 1});
  for (size_t i = 0; i < kAdasumPiece; ++i) {
    out[i] = static_cast<double>(lanes[i]);
  }
}

template <class Stored>
void StoreDoubles(const double* in, uint8_t* out, size_t count) {
  using Lane = typename Stored::Lane;
  alignas(64) Lane lanes[kAdasumPiece];
  for (size_t i = 0; i < kAdasumPiece; ++i) {
    lanes[i] = static_cast<Lane>(in[i]);
  }
  const auto* from = reinterpret_cast<const uint8_t*>(lanes);
  RunFold<Stored, Sum, Pass::kFinish, 1, Scaling::kNone>(&from, out, count, {1, 1});
}

template <class Stored>
void AdasumCombineAs(uint8_t* out, const uint8_t* a, const uint8_t* b, size_t count) {
  alignas(64) double left[kAdasumPiece];
  alignas(64) double right[kAdasumPiece];
  DotProduct dot;
  DotProduct left_norm;
  DotProduct right_norm;
  for (size_t at = 0; at < count; at += kAdasumPiece) {
    const size_t size = count - at < kAdasumPiece ? count - at : kAdasumPiece;
    LoadDoubles<Stored>(a + at * Stored::kStride, left, size);
    LoadDoubles<Stored>(b + at * Stored::kStride, right, size);
    dot.Add(left, right, kAdasumPiece);
    left_norm.Add(left, left, kAdasumPiece);
    right_norm.Add(right, right, kAdasumPiece);
  }
  const double product = dot.Value();
  const double left_square = left_norm.Value();
  const double right_square = right_norm.Value();
  const double left_factor = left_square == 0 ? 1 : 1 - product / (2 * left_square);
  const double right_factor = right_square == 0 ? 1 : 1 - product / (2 * right_square);
  for (size_t at = 0; at < count; at += kAdasumPiece) {
    const size_t size = count - at < kAdasumPiece ? count - at : kAdasumPiece;
    LoadDoubles<Stored>(a + at * Stored::kStride, left, size);
    LoadDoubles<Stored>(b + at * Stored::kStride, right, size);
    for (size_t i = 0; i < kAdasumPiece; ++i) {
      left[i] = left[i] * left_factor + right[i] * right_factor;
    }
    StoreDoubles<Stored>(left, out + at * Stored::kStride, size);
  }
}

}  // namespace
}  // namespace muster::kernels::MUSTER_LEVEL_NAMESPACE
