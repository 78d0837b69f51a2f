#include "worker/collective/shm_allreduce.h"

#include <catch2/catch.hpp>
#include <iterator>
#include <limits>

#include "test/worker/collective/folded_memory.h"
#include "test/worker/collective/shm_world.h"

namespace muster::worker {
namespace {

constexpr DType kTypes[] = {DType::kU8,
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
constexpr Op kOps[] = {Op::kSum, Op::kAverage, Op::kMin, Op::kMax, Op::kProduct};

size_t SizeOf(DType dtype) {
  return kernels::SizeOf(static_cast<kernels::Element>(dtype));
}

std::vector<Bytes> RandomInputs(Random& random, int members, size_t bytes) {
  std::vector<Bytes> inputs;
  for (int i = 0; i < members; ++i) {
    inputs.push_back(RandomBytes(random, bytes));
  }
  return inputs;
}

bool IsNaN(DType dtype, uint64_t bits) {
  switch (dtype) {
    case DType::kF16:
      return (bits & 0x7FFF) > 0x7C00;
    case DType::kBF16:
      return (bits & 0x7FFF) > 0x7F80;
    case DType::kF32:
      return (bits & 0x7FFFFFFF) > 0x7F800000;
    case DType::kF64:
      return (bits & 0x7FFFFFFFFFFFFFFF) > 0x7FF0000000000000;
    default:
      return false;
  }
}

/// The same bits, but for which NaN a NaN is: of two that meet, a kernel may keep either, by where
/// in a vector they lie.
bool SameButForNaNs(DType dtype, const Bytes& a, const Bytes& b) {
  const size_t element = SizeOf(dtype);
  for (size_t at = 0; at < std::min(a.size(), b.size()); at += element) {
    uint64_t one = 0;
    uint64_t other = 0;
    std::memcpy(&one, a.data() + at, element);
    std::memcpy(&other, b.data() + at, element);
    if (one != other && !(IsNaN(dtype, one) && IsNaN(dtype, other))) {
      return false;
    }
  }
  return a.size() == b.size();
}

/// Runs it out of place and in place: "" if all members have the same bits, and these values.
std::string Check(ShmWorld& world,
                  const std::vector<Bytes>& inputs,
                  size_t count,
                  const Reduction& what) {
  const Bytes expected = Reduced(what, inputs, count);
  std::vector<Bytes> results(inputs.size(), Bytes(expected.size(), 'x'));
  std::vector<Bytes> in_place = inputs;
  std::string problems;
  for (std::vector<Bytes>* target : {&results, &in_place}) {
    problems += world.RunAll([&](const OpContext& context, Backend& backend) {
      const auto self = static_cast<size_t>(context.group.self);
      const Piece piece{target == &results ? inputs[self].data() : in_place[self].data(),
                        (*target)[self].data(),
                        count};
      return backend.Allreduce(context, {&piece, 1}, what);
    });
    for (const Bytes& result : *target) {
      problems += result == target->front() ? "" : "other bits than member 0; ";
    }
    problems += SameButForNaNs(what.dtype, target->front(), expected) ? "" : "other values; ";
  }
  return problems;
}

TEST_CASE("shm allreduce sums what arithmetic says") {
  // The only case that does not take kernels/reduce.h as the truth.
  const int members = GENERATE(1, 2, 3, 4, 8);
  const size_t count = GENERATE(1, 1000, 100'003);
  ShmWorld world(members);
  std::vector<std::vector<int64_t>> values(static_cast<size_t>(members));
  const std::string errors = world.RunAll([&](const OpContext& context, Backend& backend) {
    std::vector<int64_t>& own = values[static_cast<size_t>(context.group.self)];
    own.resize(count);
    for (size_t i = 0; i < count; ++i) {
      own[i] = static_cast<int64_t>(i) * (context.group.self + 1);
    }
    const Piece piece{own.data(), own.data(), count};
    return backend.Allreduce(context, {&piece, 1}, {DType::kI64, Op::kSum});
  });
  CHECK(errors.empty());
  const int64_t factor = members * (members + 1) / 2;
  for (const auto& own : values) {
    size_t wrong = 0;
    for (size_t i = 0; i < count; ++i) {
      wrong += own[i] != static_cast<int64_t>(i) * factor ? 1 : 0;
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("shm allreduce gives every type and operation the values of one reduction") {
  const int members = GENERATE(1, 2, 3, 8);
  ShmWorld world(members);
  Random random(11);
  for (const DType dtype : kTypes) {
    for (const Op op : kOps) {
      if (dtype == DType::kBool && op == Op::kAverage) {
        continue;  // Refused before it gets here.
      }
      // Any bits: infinities and NaNs too.
      for (const size_t count : {size_t{1}, size_t{777}, size_t{40'001}}) {
        const auto inputs = RandomInputs(random, members, count * SizeOf(dtype));
        const Reduction what{dtype, op, 1, 1, members};
        INFO("dtype " << static_cast<int>(dtype) << " op " << static_cast<int>(op));
        CHECK(Check(world, inputs, count, what).empty());
      }
    }
  }
}

TEST_CASE("shm allreduce applies the factors once") {
  ShmWorld world(3);
  Random random(12);
  for (const DType dtype : {DType::kF16, DType::kF32, DType::kI32}) {
    const auto inputs = RandomInputs(random, 3, 30'000 * SizeOf(dtype));
    CHECK(Check(world, inputs, 30'000, {dtype, Op::kSum, 0.5, 3, 1}).empty());
    CHECK(Check(world, inputs, 30'000, {dtype, Op::kAverage, 2, 0.25, 3}).empty());
  }
}

TEST_CASE("shm allreduce takes any count, across chunks and round the ring of slots") {
  const int members = GENERATE(2, 3, 4, 5, 6, 7, 8);
  ShmWorld world(members);
  Random random(13);
  constexpr size_t kChunk = SlotExchange::kSlotBytes / sizeof(float);
  for (const size_t count : {size_t{0},
                             size_t{1},
                             size_t{63},
                             size_t{4097},
                             size_t{10'000},
                             kChunk - 1,
                             kChunk,
                             kChunk + 1,
                             3 * kChunk + 17,
                             (SlotExchange::kSlotCount + 2) * kChunk + 5}) {
    const auto inputs = RandomInputs(random, members, count * sizeof(float));
    INFO("count " << count);
    CHECK(Check(world, inputs, count, {DType::kF32, Op::kSum}).empty());
  }
}

/// Cuts [0, count) at random places, some of them the same.
std::vector<size_t> Cuts(Random& random, size_t count, size_t pieces) {
  std::vector<size_t> cuts{0, count};
  for (size_t i = 1; i < pieces; ++i) {
    cuts.push_back(random.Below(count + 1));
  }
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

TEST_CASE("shm allreduce gives fused pieces the bits that they have alone") {
  const int members = GENERATE(1, 2, 4, 5);
  const size_t pieces = GENERATE(2, 7, 3000);  // 3000: small ones, copied together.
  const size_t count = GENERATE(500, 9000, 300'000);
  const DType dtype = GENERATE(DType::kF32, DType::kBF16);
  ShmWorld world(members);
  Random random(14);
  const Reduction what{dtype, Op::kAverage, 1, 1, members};
  const auto inputs = RandomInputs(random, members, count * SizeOf(dtype));
  const Bytes expected = Reduced(what, inputs, count);
  const std::vector<size_t> cuts = Cuts(random, count, pieces);
  std::vector<Bytes> results = inputs;
  const std::string errors = world.RunAll([&](const OpContext& context, Backend& backend) {
    const auto self = static_cast<size_t>(context.group.self);
    std::vector<Piece> own;
    for (size_t i = 1; i < cuts.size(); ++i) {
      char* data = results[self].data() + cuts[i - 1] * SizeOf(dtype);
      own.push_back({data, data, cuts[i] - cuts[i - 1]});
    }
    return backend.Allreduce(context, own, what);
  });
  CHECK(errors.empty());
  for (const Bytes& result : results) {
    CHECK((result == results[0]));
    CHECK(SameButForNaNs(dtype, result, expected));
  }
}

TEST_CASE("shm allreduce takes no input as zeros and leaves out results nobody wants") {
  const int members = GENERATE(1, 2, 3, 4);
  const size_t count = GENERATE(10, 300'000);
  const size_t split = GENERATE(0, 1, 5, 9);  // Elements in the first of two pieces.
  ShmWorld world(members);
  Random random(15);
  auto inputs = RandomInputs(random, members, count * sizeof(float));
  const size_t joined = static_cast<size_t>(members) - 1;  // It has no tensor.
  inputs[joined].clear();
  const Reduction what{DType::kF32, Op::kSum, 1, 1, 1};
  const Bytes expected = Reduced(what, inputs, count);
  std::vector<Bytes> results(static_cast<size_t>(members), Bytes(count * sizeof(float)));
  const std::string errors = world.RunAll([&](const OpContext& context, Backend& backend) {
    const auto self = static_cast<size_t>(context.group.self);
    const char* in = self == joined ? nullptr : inputs[self].data();
    char* out = self == joined ? nullptr : results[self].data();
    const auto later = [&](auto* at) { return at == nullptr ? at : at + split * sizeof(float); };
    const Piece pieces[] = {{in, out, split}, {later(in), later(out), count - split}};
    return backend.Allreduce(context, pieces, what);
  });
  CHECK(errors.empty());
  for (size_t i = 0; i < joined; ++i) {
    CHECK((results[i] == expected));
  }
}

#if !defined(__SANITIZE_THREAD__)  // Its shadow of so much memory is more than a machine has.
TEST_CASE("shm allreduce counts beyond 2^31 bytes") {
  constexpr size_t kCount = (size_t{1} << 31) + 12'345;
  ShmWorld world(2);
  const FoldedMemory inputs[2] = {FoldedMemory(kCount), FoldedMemory(kCount)};
  const FoldedMemory results[2] = {FoldedMemory(kCount), FoldedMemory(kCount)};
  for (size_t i = 0; i < FoldedMemory::kFold; ++i) {
    inputs[0].data()[i] = static_cast<char>(i % 101);
    inputs[1].data()[i] = static_cast<char>(i % 23);
  }
  // What lies behind the large piece shows that every offset was right.
  Bytes tails[2] = {Bytes(1000, 1), Bytes(1000, 2)};
  const std::string errors = world.RunAll([&](const OpContext& context, Backend& backend) {
    const int self = context.group.self;
    const Piece pieces[] = {{inputs[self].data(), results[self].data(), kCount},
                            {tails[self].data(), tails[self].data(), 1000}};
    return backend.Allreduce(context, pieces, {DType::kU8, Op::kSum});
  });
  CHECK(errors.empty());
  for (int self = 0; self < 2; ++self) {
    CHECK(tails[self] == Bytes(1000, 3));
    size_t wrong = 0;
    for (size_t i = 0; i < FoldedMemory::kFold; ++i) {
      wrong += results[self].data()[i] != static_cast<char>(i % 101 + i % 23) ? 1 : 0;
    }
    CHECK(wrong == 0);
  }
}
#endif

}  // namespace
}  // namespace muster::worker
