#pragma once

// What a collective has to give, computed from first principles: every rank can produce the data of
// every other rank, and reduces it in long double or in 128-bit integers. Shares no code with the
// engine, nor with its kernels. Stateless, thread-safe.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "muster/muster.h"

namespace muster::test {

size_t SizeOf(DType dtype);
const char* NameOf(DType dtype);
const char* NameOf(Op op);
bool IsFloat(DType dtype);
const std::vector<DType>& AllTypes();
int64_t CountOf(const Shape& shape);

/// A good hash of three numbers: the source of all data and of all choices that ranks must share.
uint64_t Mix(uint64_t seed, uint64_t a, uint64_t b = 0);

/// Nearest value of the type, ties to even; 16-bit floats by their definition, not by a table.
void StoreFloat(DType dtype, long double value, void* to);
long double LoadFloat(DType dtype, const void* from);

enum class Values : uint8_t {
  kExact,     // Small integers: sums and products have no rounding in any type.
  kWide,      // The whole range of integers (so that sums wrap); floats with full mantissas.
  kConstant,  // Small integers, the same for all elements of a rank: cheap to make.
  kSame,      // As kWide, the same on all ranks.
};

/// What ranks hold.
struct Source {
  DType dtype = DType::kF32;
  Op op = Op::kSum;  // Products need tamer values.
  Values values = Values::kExact;
  uint64_t seed = 0;
};
/// Writes elements [first, first + count) of this rank's data.
void Fill(const Source& source, int rank, int64_t first, int64_t count, void* to);

struct Expectation {
  Source source;
  std::vector<int> ranks;  // Of the world: who brings data.
  int divisor = 1;         // Of an average.
  double prescale = 1;
  double postscale = 1;
};
/// Compares `count` results with elements [first, first + count) of the reduction, all or, of more
/// than `sample`, both ends and a sample. Returns what differs first: index, expected, got.
std::optional<std::string> CompareReduced(
    const Expectation& expected, int64_t first, int64_t count, const void* got, int64_t sample);
/// The same for Adasum, over the whole tensor: neighbours are combined, then pairs, then fours.
/// Where the world is no power of two the data has to be Values::kSame, which any order keeps.
std::optional<std::string> CompareAdasum(const Expectation& expected,
                                         int64_t count,
                                         const void* got);
/// Compares bytes with elements of one rank.
std::optional<std::string> CompareCopied(
    const Source& source, int rank, int64_t first, int64_t count, const void* got);

}  // namespace muster::test
