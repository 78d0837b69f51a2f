#pragma once

// Elements of any type in raw memory, as doubles, and what a reduction of them has to give,
// computed without the kernels. Exact for values that are small.
//
// Thread-safe: no state.

#include <cstddef>
#include <vector>

#include "worker/collective/backend.h"

namespace muster::worker {

inline constexpr DType kAllTypes[] = {DType::kU8,
                                      DType::kI8,
                                      DType::kU16,
                                      DType::kI16,
                                      DType::kI32,
                                      DType::kI64,
                                      DType::kF16,
                                      DType::kBF16,
                                      DType::kF32,
                                      DType::kF64,
                                      DType::kBool};

size_t BytesOf(DType dtype);
bool IsFloat(DType dtype);
/// Integers wrap.
void Put(DType dtype, void* buffer, size_t i, double value);
double Get(DType dtype, const void* buffer, size_t i);

/// The result for one element, of the inputs of all members.
double Reduced(const Reduction& what, const std::vector<double>& inputs);
/// Whether element i of `buffer` is `expected`, as far as the type can tell. An average is rounded
/// once more than the expectation.
bool Matches(const Reduction& what, const void* buffer, size_t i, double expected);

}  // namespace muster::worker
