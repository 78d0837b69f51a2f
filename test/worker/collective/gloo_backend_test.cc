#include "worker/collective/gloo_backend.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <limits>
#include <thread>

#include "common/random.h"
#include "kernels/half.h"
#include "test/worker/collective/backend_cases.h"
#include "test/worker/collective/mesh_fixture.h"
#include "test/worker/collective/typed_values.h"

namespace muster::worker {
namespace {

using Clock = std::chrono::steady_clock;

Backends MakeWorld(int size) {
  auto sockets = ConnectAll(size);
  Backends backends;
  for (int rank = 0; rank < size; ++rank) {
    backends.push_back(MakeGlooBackend(rank, std::move(sockets[static_cast<size_t>(rank)])));
  }
  return backends;
}

Clock::time_point Later() {
  return Clock::now() + std::chrono::seconds(20);
}

/// An allreduce of one element for each rank; all get the same bits, which are returned.
template <class T>
T ReducedValue(DType dtype, std::vector<T> values, Op op, double pre = 1, double post = 1) {
  const int size = static_cast<int>(values.size());
  Backends world = MakeWorld(size);
  const Reduction what{dtype, op, pre, post, op == Op::kAverage ? size : 1};
  OnAllRanks(size, [&](int rank) {
    T& value = values[static_cast<size_t>(rank)];
    const Group group{WholeWorld(size), rank};
    const Piece piece{&value, &value, 1};
    if (!world[static_cast<size_t>(rank)]->Allreduce({group, 1, Later()}, {&piece, 1}, what).ok()) {
      throw std::runtime_error("the allreduce failed");
    }
  });
  for (const T& value : values) {
    CHECK(std::memcmp(&value, values.data(), sizeof value) == 0);
  }
  return values[0];
}

}  // namespace

// ---------------------------------------------------------------- results

TEST_CASE("gloo backend reduces every type with every reduction") {
  const int size = GENERATE(range(1, 9));
  Backends world = MakeWorld(size);
  uint64_t number = 0;
  for (const DType dtype : kAllTypes) {
    for (const Op op : {Op::kSum, Op::kAverage, Op::kProduct, Op::kMin, Op::kMax}) {
      if (dtype == DType::kBool && op == Op::kAverage) {
        continue;
      }
      for (const Kind kind : {Kind::kAllreduce, Kind::kReduceToRoot, Kind::kReduceScatter}) {
        Case what = CaseOfBytes(kind, WholeWorld(size), 37);
        what.what = {dtype, op, 1, 1, op == Op::kAverage ? size : 1};
        what.root = size / 2;
        CHECK_NOTHROW(RunEverywhere(world, ++number, what));
      }
    }
  }
}

TEST_CASE("gloo backend moves and reduces any count, in place or not") {
  const int size = GENERATE(1, 2, 3, 5, 8);
  Backends world = MakeWorld(size);
  uint64_t number = 0;
  for (const Kind kind : kAllKinds) {
    for (const size_t count : {0, 1, 2, 3, 7, 1021, 65'537, 400'011}) {
      Case what = CaseOfBytes(kind, WholeWorld(size), count);
      what.root = size - 1;
      what.in_place = count % 2 == 0;
      CHECK_NOTHROW(RunEverywhere(world, ++number, what));
    }
  }
}

TEST_CASE("gloo backend fuses pieces of any size, with zeros of who has joined") {
  Backends world = MakeWorld(3);
  uint64_t number = 0;
  for (const size_t large : {5u, 5'000u, 700'001u}) {
    for (const DType dtype : {DType::kF16, DType::kI32, DType::kF64}) {
      for (const Op op : {Op::kSum, Op::kAverage}) {
        Case what = CaseOfBytes(Kind::kAllreduce, WholeWorld(3), 0);
        what.what = {dtype, op, 1, 1, op == Op::kAverage ? 3 : 1};
        what.counts = {3, 0, large, 1, large / 3};
        what.joined = static_cast<int>(number % 3);
        what.unwilling = static_cast<int>(number / 2 % 3);
        CHECK_NOTHROW(RunEverywhere(world, ++number, what));
      }
    }
  }
}

TEST_CASE("gloo backend gives all ranks the same bits of a float sum") {
  const int size = GENERATE(2, 3, 4, 7, 17);
  Backends world = MakeWorld(size);
  for (const size_t count : {900u, 10'007u, 300'000u}) {
    std::vector<std::vector<float>> values(static_cast<size_t>(size));
    OnAllRanks(size, [&](int rank) {
      auto& mine = values[static_cast<size_t>(rank)];
      Random random(static_cast<uint64_t>(rank));
      for (size_t i = 0; i < count; ++i) {
        mine.push_back(static_cast<float>(random.Below(1'000'003)) * 1e-3f);
      }
      const Group group{WholeWorld(size), rank};
      const Piece piece{mine.data(), mine.data(), count};
      if (!world[static_cast<size_t>(rank)]
               ->Allreduce({group, count, Later()}, {&piece, 1}, {DType::kF32, Op::kSum})
               .ok()) {
        throw std::runtime_error("the allreduce failed");
      }
    });
    for (const auto& mine : values) {
      CHECK(std::memcmp(mine.data(), values[0].data(), count * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("gloo backend serves groups that are too large to talk to each other at once") {
  const int size = GENERATE(17, 20);
  Backends world = MakeWorld(size);
  uint64_t number = 0;
  for (const Kind kind : kAllKinds) {
    for (const size_t count : {0u, 1u, 1'003u, 120'000u}) {
      Case what = CaseOfBytes(kind, WholeWorld(size), count);
      what.root = 3;
      CHECK_NOTHROW(RunEverywhere(world, ++number, what));
    }
  }
  Case what = CaseOfBytes(Kind::kAllreduce, WholeWorld(size), 0);
  what.counts = {3, 100'000, 0, 1};
  for (const DType dtype : {DType::kBF16, DType::kI64, DType::kF32}) {
    what.what = {dtype, Op::kAverage, 1, 1, size};
    what.joined = 2;
    what.unwilling = 4;
    CHECK_NOTHROW(RunEverywhere(world, ++number, what));
  }
}

TEST_CASE("gloo backend runs disjoint groups at the same time") {
  Backends world = MakeWorld(5);
  const std::vector<std::vector<int>> groups = {{0, 3}, {1, 2, 4}};
  OnAllRanks(5, [&](int rank) {
    const auto& ranks = groups[rank == 0 || rank == 3 ? 0 : 1];
    // The numbers of one group leave gaps in the other.
    for (uint64_t round = 0; round < 60; ++round) {
      Case what = CaseOfBytes(kAllKinds[round % std::size(kAllKinds)], ranks, 40 * round * round);
      what.seed = round;
      const Outcome outcome = RunCase(
          *world[static_cast<size_t>(rank)], rank, 2 * round + ranks.size() % 2, Later(), what);
      if (!outcome.status.ok() || !outcome.wrong.empty()) {
        throw std::runtime_error(Describe(what) + outcome.status.message() + outcome.wrong);
      }
    }
  });
}

TEST_CASE("gloo backend runs any sequence of operations on any groups") {
  const uint64_t seed = GENERATE(range(1, 9));
  const int size = 2 + static_cast<int>(seed % 7);
  Backends world = MakeWorld(size);
  CAPTURE(seed);
  std::vector<Case> cases;
  Random random(seed);
  for (int i = 0; i < 60; ++i) {
    cases.push_back(DrawCase(random, size, 100'000));
  }
  OnAllRanks(size, [&](int rank) {
    for (size_t i = 0; i < cases.size(); ++i) {
      const std::vector<int>& ranks = cases[i].ranks;
      if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) {
        continue;
      }
      const Outcome outcome =
          RunCase(*world[static_cast<size_t>(rank)], rank, i, Later(), cases[i]);
      if (!outcome.status.ok() || !outcome.wrong.empty()) {
        throw std::runtime_error(Describe(cases[i]) + ": " + outcome.status.message() +
                                 outcome.wrong);
      }
    }
  });
}

// ---------------------------------------------------------------- errors

TEST_CASE("gloo backend abort frees a rank that waits in any operation") {
  const Kind kind = GENERATE(from_range(kAllKinds));
  Backends world = MakeWorld(3);
  // The root of a broadcast would wait only for room.
  Case what = CaseOfBytes(kind, WholeWorld(3), 1u << 20);
  what.root = kind == Kind::kReduceToRoot ? 0 : 1;
  std::promise<void> started;
  auto stuck = std::async(std::launch::async, [&] {
    started.set_value();
    return RunCase(*world[0], 0, 1, Later(), what).status;
  });
  started.get_future().wait();
  world[0]->Abort();
  REQUIRE(stuck.wait_for(std::chrono::seconds(15)) == std::future_status::ready);
  CHECK(stuck.get().code() == StatusCode::kAborted);
  CHECK(world[0]->suspects().empty());
  for (const Kind later : kAllKinds) {
    // Also where nothing would be sent.
    const Case alone = CaseOfBytes(later, {0}, 0);
    CHECK(RunCase(*world[0], 0, 2, Later(), alone).status.code() == StatusCode::kAborted);
  }
}

TEST_CASE("gloo backend abort ends every operation in whatever phase it is") {
  const Kind kind = GENERATE(from_range(kAllKinds));
  const size_t bytes = GENERATE(100, 600'000);
  for (uint64_t round = 0; round < 4; ++round) {
    Backends world = MakeWorld(4);
    Case what = CaseOfBytes(kind, WholeWorld(4), bytes);
    what.is_checked = false;
    AbortAfter(world, what, 2 + round * 3);
  }
}

TEST_CASE("gloo backend names the rank that went away") {
  const Kind kind = GENERATE(from_range(kAllKinds));
  const size_t bytes = GENERATE(1'000, 3'000'000);
  Backends world = MakeWorld(3);
  Case what = CaseOfBytes(kind, {1, 2}, bytes);
  const auto run = [&](int rank, uint64_t number) {
    return RunCase(*world[static_cast<size_t>(rank)], rank, number, Later(), what).status;
  };
  auto left = std::async(std::launch::async, [&] {
    // A root that only sends may fill buffers for a while.
    Status status;
    for (uint64_t number = 1; status.ok(); ++number) {
      what.root = 0;
      status = run(1, number);
    }
    return status;
  });
  if (kind == Kind::kBarrier) {
    CHECK(run(2, 1).ok());
  }
  world[2].reset();
  REQUIRE(left.wait_for(std::chrono::seconds(10)) == std::future_status::ready);
  CHECK(left.get().code() == StatusCode::kFailed);
  CHECK(world[1]->suspects() == std::vector<int>{2});
  // It is of no use any more, not even alone.
  const Case alone = CaseOfBytes(Kind::kBarrier, {1}, 0);
  CHECK(RunCase(*world[1], 1, 99, Later(), alone).status.code() == StatusCode::kFailed);
}

TEST_CASE("gloo backend names the rank that closes in the middle of an operation") {
  const Kind kind = GENERATE(Kind::kAllreduce, Kind::kReduceScatter, Kind::kAllgatherv);
  auto sockets = ConnectAll(2);
  GlooBackend backend(0, std::move(sockets[0]), std::chrono::microseconds(0));
  const Case what = CaseOfBytes(kind, WholeWorld(2), 500'000);
  auto left =
      std::async(std::launch::async, [&] { return RunCase(backend, 0, 1, Later(), what).status; });
  // The peer begins a message of the right kind, and is gone.
  const PrivateFd& peer = sockets[1][0];
  char header[16];
  for (size_t done = 0; done < sizeof header;) {
    const ssize_t count = ReadSome(peer.get(), header + done, sizeof header - done);
    REQUIRE(count >= 0);
    done += static_cast<size_t>(count);
  }
  REQUIRE(WriteSome(peer.get(), header, sizeof header) == sizeof header);
  REQUIRE(WriteSome(peer.get(), "some", 4) == 4);
  sockets[1].clear();
  REQUIRE(left.wait_for(std::chrono::seconds(10)) == std::future_status::ready);
  CHECK(left.get().code() == StatusCode::kFailed);
  CHECK(backend.suspects() == std::vector<int>{1});
}

TEST_CASE("gloo backend names the rank that keeps others waiting beyond the deadline") {
  const Kind kind = GENERATE(from_range(kAllKinds));
  Backends world = MakeWorld(3);
  Case what = CaseOfBytes(kind, WholeWorld(3), 1'000);
  what.root = kind == Kind::kReduceToRoot ? 0 : 2;
  const auto deadline = Clock::now() + std::chrono::milliseconds(100);
  OnAllRanks(2, [&](int rank) {
    if (kind == Kind::kReduceToRoot && rank == 1) {
      return;  // It only sends to the root.
    }
    const Status status =
        RunCase(*world[static_cast<size_t>(rank)], rank, 1, deadline, what).status;
    const std::vector<int> suspects = world[static_cast<size_t>(rank)]->suspects();
    if (status.code() != StatusCode::kTimeout || suspects.empty()) {
      throw std::runtime_error("rank " + std::to_string(rank) + ": " + status.message());
    }
    // The two others may suspect each other where they hear of the third from one another, or are
    // slow themselves.
    const bool is_direct = kind != Kind::kBarrier && kind != Kind::kBroadcast;
    if (is_direct && std::find(suspects.begin(), suspects.end(), 2) == suspects.end()) {
      throw std::runtime_error("only another rank is suspected");
    }
  });
}

// ---------------------------------------------------------------- scaling and averaging

TEST_CASE("average of integers truncates toward zero and does not overflow") {
  CHECK(ReducedValue<int32_t>(DType::kI32, {3, 4}, Op::kAverage) == 3);
  CHECK(ReducedValue<int32_t>(DType::kI32, {-3, -4}, Op::kAverage) == -3);
  CHECK(ReducedValue<int8_t>(DType::kI8, {100, 100, 100}, Op::kAverage) == 100);
  CHECK(ReducedValue<uint8_t>(DType::kU8, {255, 254}, Op::kAverage) == 254);
  CHECK(ReducedValue<uint16_t>(DType::kU16, {65535, 65535, 65535}, Op::kAverage) == 65535);
}

TEST_CASE("average of 64-bit integers is exact beyond 64 bits of sum") {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  CHECK(ReducedValue<int64_t>(DType::kI64, {kMost, kMost, kMost - 2}, Op::kAverage) == kMost - 1);
  CHECK(ReducedValue<int64_t>(DType::kI64, {kLeast, kLeast, kLeast}, Op::kAverage) == kLeast);
  CHECK(ReducedValue<int64_t>(DType::kI64, {kMost, kLeast}, Op::kAverage) == 0);
  Random random(5);
  for (int round = 0; round < 30; ++round) {
    std::vector<int64_t> values(1 + random.Below(4));
    __int128 sum = 0;
    for (int64_t& value : values) {
      value = static_cast<int64_t>(random.Next()) >> random.Below(64);
      sum += value;
    }
    CHECK(ReducedValue<int64_t>(DType::kI64, values, Op::kAverage) ==
          static_cast<int64_t>(sum / static_cast<int>(values.size())));
  }
}

TEST_CASE("average of half floats does not overflow where its sum would") {
  const uint16_t big = kernels::F16FromFloat(60'000);
  CHECK(ReducedValue<uint16_t>(DType::kF16, {big, big, big}, Op::kAverage) == big);
}

TEST_CASE("sum of half floats keeps the precision of a float until the end") {
  // 2048 + 1 is no half float: summed in halves, the ones would be lost.
  const auto half = [](float value) { return kernels::F16FromFloat(value); };
  CHECK(ReducedValue<uint16_t>(DType::kF16, {half(2048), half(1), half(1)}, Op::kSum) ==
        half(2050));
}

TEST_CASE("factors are applied before and after, integers truncating each time") {
  CHECK(ReducedValue<int32_t>(DType::kI32, {3, 3}, Op::kSum, 0.5) == 2);       // 1 + 1
  CHECK(ReducedValue<int32_t>(DType::kI32, {3, 4}, Op::kSum, 1, 0.5) == 3);    // 7 / 2
  CHECK(ReducedValue<int32_t>(DType::kI32, {3, 4}, Op::kAverage, 1, 2) == 7);  // 7 / 2 * 2
  CHECK(ReducedValue<float>(DType::kF32, {3, 4}, Op::kSum, 0.5, 10) == 35);
  CHECK(ReducedValue<float>(DType::kF32, {3, 4}, Op::kMax, 2, 0.5) == 4);
}

}  // namespace muster::worker
