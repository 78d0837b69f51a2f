#pragma once

// The tensors of an order, filled so that a right result is known without computing it: element i
// of rank r is (i + 37 r + 11 salt) mod 1024, which is exact in a float, also summed. The salt
// changes with each iteration: what was left by the one before is a wrong result.
//
// One thread.

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "bench/order.h"

namespace muster::bench {

/// Sizes in floats.
struct Layout {
  size_t in = 0;
  size_t out = 0;
  size_t part = 0;  // What one rank gives to or gets from one other, where an operation divides.
  bool operator==(const Layout&) const = default;
};
/// Where an operation divides, each rank's part is `bytes` / `size`, one float at least.
Layout LayoutOf(Operation operation, size_t bytes, int size);

class Buffers {
 public:
  /// A broadcast is in place, and an allreduce with fresh data each time. Throws std::bad_alloc.
  Buffers(const Order& order, int rank, int size);

  const Layout& layout() const { return layout_; }
  size_t count() const { return tensors_.size(); }
  float* in(size_t tensor) const { return tensors_[tensor].in; }
  float* out(size_t tensor) const { return tensors_[tensor].out; }
  /// The contestant leaves the result at the start of its input.
  void LeaveResultsInInput();

  /// Gives each input its values for `salt`, and results of their own memory no value at all.
  void Fill(size_t salt);
  /// Every element of every result. Empty: right; else what is wrong first.
  std::string Mistake(size_t salt) const;

 private:
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };
  using Memory = std::unique_ptr<char, Free>;
  struct TensorMemory {
    float* in = nullptr;
    float* out = nullptr;
  };

  float* Allocate(size_t floats);
  std::string MistakeIn(const float* result, size_t tensor, size_t salt) const;

  Operation operation_;
  size_t offset_;
  int rank_;
  int size_;
  Layout layout_;
  std::vector<Memory> memory_;
  std::vector<TensorMemory> tensors_;
};

}  // namespace muster::bench
