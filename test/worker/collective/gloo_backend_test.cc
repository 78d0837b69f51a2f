#include "worker/collective/gloo_backend.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>

#include "common/random.h"
#include "test/worker/collective/mesh_fixture.h"
#include "worker/collective/reduce.h"
#include "worker/collective_runner.h"
#include "worker/core/dtype.h"

namespace muster::worker {
namespace {

using Backends = std::vector<std::unique_ptr<Backend>>;
constexpr std::chrono::seconds kTimeout{20};
constexpr DType kAll[] = {DType::kU8,
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

Backends MakeWorld(int size) {
  auto sockets = ConnectAll(size);
  Backends backends;
  for (int rank = 0; rank < size; ++rank) {
    backends.push_back(MakeGlooBackend(rank, std::move(sockets[rank])));
  }
  return backends;
}

void Put(DType dtype, std::vector<char>& buffer, size_t i, double value) {
  char* at = buffer.data() + i * ElementSize(dtype);
  const auto store = [at](auto typed) { std::memcpy(at, &typed, sizeof typed); };
  switch (dtype) {
    case DType::kF16:
      return store(FloatToHalf(static_cast<float>(value)));
    case DType::kBF16:
      return store(FloatToBFloat16(static_cast<float>(value)));
    case DType::kF32:
      return store(static_cast<float>(value));
    case DType::kF64:
      return store(value);
    default:
      // Little-endian two's complement: the low bytes are the value in every integer type.
      const auto whole = static_cast<int64_t>(value);
      std::memcpy(at, &whole, ElementSize(dtype));
  }
}

double Get(DType dtype, const std::vector<char>& buffer, size_t i) {
  const char* at = buffer.data() + i * ElementSize(dtype);
  const auto load = [at](auto typed) {
    std::memcpy(&typed, at, sizeof typed);
    return typed;
  };
  switch (dtype) {
    case DType::kF16:
      return HalfToFloat(load(uint16_t{}));
    case DType::kBF16:
      return BFloat16ToFloat(load(uint16_t{}));
    case DType::kF32:
      return load(float{});
    case DType::kF64:
      return load(double{});
    case DType::kI8:
      return load(int8_t{});
    case DType::kI16:
      return load(int16_t{});
    case DType::kI32:
      return load(int32_t{});
    case DType::kI64:
      return static_cast<double>(load(int64_t{}));
    case DType::kU16:
      return load(uint16_t{});
    default:
      return load(uint8_t{});
  }
}

/// Small numbers: every sum and product of five is exact in every type.
double Input(DType dtype, int rank, size_t i) {
  const auto value = static_cast<double>((static_cast<size_t>(rank) * 3 + i * 5) % 3);
  if (dtype == DType::kBool) {
    return value > 0 ? 1 : 0;
  }
  const bool is_signed = dtype != DType::kU8 && dtype != DType::kU16;
  return is_signed && (i + static_cast<size_t>(rank)) % 2 == 1 ? -value : value;
}

double Combine(DType dtype, Op op, double a, double b) {
  if (dtype == DType::kBool) {
    const bool all = op == Op::kMin || op == Op::kProduct;
    return all ? (a != 0 && b != 0) : (a != 0 || b != 0);
  }
  switch (op) {
    case Op::kSum:
      return a + b;
    case Op::kProduct:
      return a * b;
    case Op::kMin:
      return std::min(a, b);
    default:
      return std::max(a, b);
  }
}

void CheckAllreduce(Backends& world, DType dtype, Op op, size_t count, bool in_place) {
  const int size = static_cast<int>(world.size());
  std::vector<std::vector<char>> results(world.size());
  OnAllRanks(size, [&](int rank) {
    std::vector<char> in(count * ElementSize(dtype));
    for (size_t i = 0; i < count; ++i) {
      Put(dtype, in, i, Input(dtype, rank, i));
    }
    std::vector<char>& out = results[static_cast<size_t>(rank)];
    out = in_place ? in : std::vector<char>(in.size(), 'z');
    const Status status = world[rank]->Allreduce(
        in_place ? out.data() : in.data(), out.data(), {dtype, count, op}, kTimeout);
    if (!status.ok()) {
      throw std::runtime_error(status.message());
    }
  });
  for (size_t i = 0; i < count; ++i) {
    double expected = Input(dtype, 0, i);
    for (int rank = 1; rank < size; ++rank) {
      expected = Combine(dtype, op, expected, Input(dtype, rank, i));
    }
    if (Get(dtype, results[0], i) != expected) {
      FAIL("element " << i << " is " << Get(dtype, results[0], i) << ", not " << expected);
    }
  }
  for (const auto& result : results) {
    CHECK(result == results[0]);
  }
}

/// Runs one submission on all ranks; `make(rank)` gives it.
void RunEverywhere(Backends& world, const std::function<Submission(int)>& make) {
  OnAllRanks(static_cast<int>(world.size()), [&](int rank) {
    const Outcome outcome =
        RunCollective(*world[rank], static_cast<int>(world.size()), make(rank), {}, kTimeout);
    if (!outcome.status.ok()) {
      throw std::runtime_error(outcome.status.message());
    }
  });
}

/// What an allreduce of one element per rank gives, on rank 0; all ranks must agree.
template <class T>
T Reduced(DType dtype, std::vector<T> values, Op op, double prescale = 1, double postscale = 1) {
  Backends world = MakeWorld(static_cast<int>(values.size()));
  RunEverywhere(world, [&](int rank) {
    Submission call;
    call.kind = OpKind::kAllreduce;
    call.in = {&values[static_cast<size_t>(rank)], dtype, {1}};
    call.out = call.in;
    call.op = op;
    call.prescale = prescale;
    call.postscale = postscale;
    return call;
  });
  for (const T& value : values) {
    CHECK(std::memcmp(&value, &values[0], sizeof value) == 0);
  }
  return values[0];
}

}  // namespace

TEST_CASE("gloo backend reduces every type with every reduction") {
  const int size = GENERATE(1, 2, 3, 4, 5);
  Backends world = MakeWorld(size);
  for (const DType dtype : kAll) {
    for (const Op op : {Op::kSum, Op::kProduct, Op::kMin, Op::kMax}) {
      CAPTURE(size, Name(dtype), Name(op));
      CheckAllreduce(world, dtype, op, 37, false);
    }
  }
}

TEST_CASE("gloo backend reduces any count, in place or not") {
  const int size = GENERATE(1, 2, 3, 5);
  Backends world = MakeWorld(size);
  for (const size_t count : {0, 1, 2, 3, 4, 5, 7, 1023, 65537}) {
    for (const bool in_place : {false, true}) {
      CAPTURE(size, count, in_place);
      CheckAllreduce(world, DType::kF32, Op::kSum, count, in_place);
      CheckAllreduce(world, DType::kU8, Op::kMax, count, in_place);
    }
  }
}

TEST_CASE("gloo backend gives all ranks the same bits of a float sum") {
  Backends world = MakeWorld(4);
  const size_t count = 10'007;
  std::vector<std::vector<float>> values(4);
  for (size_t rank = 0; rank < 4; ++rank) {
    Random random(rank);
    for (size_t i = 0; i < count; ++i) {
      values[rank].push_back(static_cast<float>(random.Below(1'000'003)) * 1e-3f);
    }
  }
  OnAllRanks(4, [&](int rank) {
    auto& mine = values[static_cast<size_t>(rank)];
    if (!world[rank]
             ->Allreduce(mine.data(), mine.data(), {DType::kF32, count, Op::kSum}, kTimeout)
             .ok()) {
      throw std::runtime_error("failed");
    }
  });
  for (const auto& mine : values) {
    CHECK(std::memcmp(mine.data(), values[0].data(), count * sizeof(float)) == 0);
  }
}

TEST_CASE("gloo backend gathers different sizes in rank order, empty ones included") {
  const int size = GENERATE(1, 2, 4, 5);
  Backends world = MakeWorld(size);
  std::vector<size_t> counts;
  std::string expected;
  for (int rank = 0; rank < size; ++rank) {
    counts.push_back(static_cast<size_t>((rank * 7 + 1) % 4));
    expected += std::string(counts.back(), static_cast<char>('a' + rank));
  }
  OnAllRanks(size, [&](int rank) {
    const std::string in(counts[static_cast<size_t>(rank)], static_cast<char>('a' + rank));
    std::string out(expected.size(), '?');
    const Status status = world[rank]->Allgatherv(in.data(), out.data(), counts, kTimeout);
    if (!status.ok() || out != expected) {
      throw std::runtime_error("gathered " + out + ": " + status.message());
    }
  });
}

TEST_CASE("gloo backend broadcasts from every root") {
  const int size = GENERATE(1, 2, 3, 5);
  Backends world = MakeWorld(size);
  for (int root = 0; root < size; ++root) {
    for (const size_t bytes : {0u, 1u, 77'777u}) {
      OnAllRanks(size, [&](int rank) {
        std::string value(bytes, rank == root ? 'r' : '-');
        const Status status = world[rank]->Broadcast(value.data(), bytes, root, kTimeout);
        if (!status.ok() || value != std::string(bytes, 'r')) {
          throw std::runtime_error("broadcast failed: " + status.message());
        }
      });
    }
  }
}

TEST_CASE("gloo backend abort frees a rank in the middle of each operation") {
  const int kind = GENERATE(0, 1, 2);
  Backends world = MakeWorld(2);
  std::vector<char> buffer(8u << 20);
  std::promise<void> started;
  auto stuck = std::async(std::launch::async, [&] {
    started.set_value();
    if (kind == 0) {
      return world[0]->Allreduce(
          buffer.data(), buffer.data(), {DType::kU8, buffer.size(), Op::kMax}, kTimeout);
    }
    if (kind == 1) {
      const std::vector<size_t> counts = {4u << 20, 4u << 20};
      return world[0]->Allgatherv(buffer.data(), buffer.data(), counts, kTimeout);
    }
    return world[0]->Broadcast(buffer.data(), buffer.size(), 1, kTimeout);
  });
  started.get_future().wait();
  world[0]->Abort();
  REQUIRE(stuck.wait_for(std::chrono::seconds(5)) == std::future_status::ready);
  CHECK(stuck.get().code() == StatusCode::kAborted);
  CHECK(world[0]->Broadcast(buffer.data(), 1, 0, kTimeout).code() == StatusCode::kAborted);
}

TEST_CASE("gloo backend names the rank that went away") {
  Backends world = MakeWorld(3);
  std::vector<float> value(1000, 1);
  auto left = std::async(std::launch::async, [&] {
    return world[1]->Allreduce(
        value.data(), value.data(), {DType::kF32, value.size(), Op::kSum}, kTimeout);
  });
  world[2].reset();
  REQUIRE(left.wait_for(std::chrono::seconds(5)) == std::future_status::ready);
  CHECK(left.get().code() == StatusCode::kFailed);
  CHECK(world[1]->suspects() == std::vector<int>{2});
}

// ---------------------------------------------------------------- scaling and averaging

TEST_CASE("average of integers truncates toward zero and does not overflow") {
  CHECK(Reduced<int32_t>(DType::kI32, {3, 4}, Op::kAverage) == 3);
  CHECK(Reduced<int32_t>(DType::kI32, {-3, -4}, Op::kAverage) == -3);
  CHECK(Reduced<int8_t>(DType::kI8, {100, 100, 100}, Op::kAverage) == 100);
  CHECK(Reduced<uint8_t>(DType::kU8, {255, 254}, Op::kAverage) == 254);
  CHECK(Reduced<uint16_t>(DType::kU16, {65535, 65535, 65535}, Op::kAverage) == 65535);
}

TEST_CASE("average of 64-bit integers is exact beyond 64 bits of sum") {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  CHECK(Reduced<int64_t>(DType::kI64, {kMost, kMost, kMost - 2}, Op::kAverage) == kMost - 1);
  CHECK(Reduced<int64_t>(DType::kI64, {kLeast, kLeast, kLeast}, Op::kAverage) == kLeast);
  CHECK(Reduced<int64_t>(DType::kI64, {kMost, kLeast}, Op::kAverage) == 0);
  Random random(5);
  for (int round = 0; round < 30; ++round) {
    std::vector<int64_t> values(1 + random.Below(4));
    __int128 sum = 0;
    for (int64_t& value : values) {
      value = static_cast<int64_t>(random.Next()) >> random.Below(64);
      sum += value;
    }
    CHECK(Reduced<int64_t>(DType::kI64, values, Op::kAverage) ==
          static_cast<int64_t>(sum / static_cast<int>(values.size())));
  }
}

TEST_CASE("average of floats divides the sum") {
  CHECK(Reduced<float>(DType::kF32, {1, 2, 4}, Op::kAverage) == 7.0f / 3);
  CHECK(Reduced<double>(DType::kF64, {1, 2}, Op::kAverage) == 1.5);
}

TEST_CASE("average of half floats does not overflow where its sum would") {
  const uint16_t big = FloatToHalf(60000);
  CHECK(Reduced<uint16_t>(DType::kF16, {big, big, big}, Op::kAverage) == big);
}

TEST_CASE("sum of half floats keeps the precision of a float until the end") {
  // 2048 + 1 is no half float: summed in halves, the ones would be lost.
  CHECK(Reduced<uint16_t>(DType::kF16,
                          {FloatToHalf(2048), FloatToHalf(1), FloatToHalf(1)},
                          Op::kSum) == FloatToHalf(2050));
}

TEST_CASE("factors are applied before and after, integers truncating each time") {
  CHECK(Reduced<int32_t>(DType::kI32, {3, 3}, Op::kSum, 0.5) == 2);       // 1 + 1
  CHECK(Reduced<int32_t>(DType::kI32, {3, 4}, Op::kSum, 1, 0.5) == 3);    // 7 / 2
  CHECK(Reduced<int32_t>(DType::kI32, {3, 4}, Op::kAverage, 1, 2) == 7);  // 7 / 2 * 2
  CHECK(Reduced<float>(DType::kF32, {3, 4}, Op::kSum, 0.5, 10) == 35);
  CHECK(Reduced<float>(DType::kF32, {3, 4}, Op::kMax, 2, 0.5) == 4);
  CHECK(Reduced<uint16_t>(DType::kBF16, {FloatToBFloat16(3), FloatToBFloat16(4)}, Op::kSum, 2) ==
        FloatToBFloat16(14));
}

TEST_CASE("allgather takes part with memory of its own if the caller gives none") {
  Backends world = MakeWorld(2);
  std::vector<int32_t> result;
  std::exception_ptr own_error;
  OnAllRanks(2, [&](int rank) {
    int32_t mine = rank + 1;
    Submission call;
    call.kind = OpKind::kAllgather;
    call.in = {&mine, DType::kI32, {1}};
    call.allocate = [&, rank](const Shape& shape, DType, const Device&) -> void* {
      if (rank == 0) {
        throw std::length_error("too long for me");
      }
      result.resize(static_cast<size_t>(shape[0]));
      return result.data();
    };
    const Outcome outcome = RunCollective(*world[rank], 2, call, {1, 1}, kTimeout);
    if (!outcome.status.ok()) {
      throw std::runtime_error(outcome.status.message());
    }
    if (rank == 0) {
      own_error = outcome.own_error;
    }
  });
  CHECK(result == std::vector<int32_t>{1, 2});
  REQUIRE(own_error);
  CHECK_THROWS_AS(std::rethrow_exception(own_error), std::length_error);
}

}  // namespace muster::worker
