#include "worker/collective/hierarchical_backend.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <cstring>
#include <thread>

#include "common/random.h"
#include "kernels/half.h"
#include "test/worker/collective/backend_cases.h"
#include "test/worker/collective/mesh_fixture.h"
#include "test/worker/collective/typed_values.h"

namespace muster::worker {
namespace {

using Clock = std::chrono::steady_clock;

Clock::time_point Later() {
  return Clock::now() + std::chrono::seconds(20);
}

/// The hosts of the ranks, by the number of ranks on each.
std::vector<int> HostsOf(const std::vector<int>& sizes) {
  std::vector<int> hosts;
  for (size_t host = 0; host < sizes.size(); ++host) {
    hosts.insert(hosts.end(), static_cast<size_t>(sizes[host]), static_cast<int>(7 * host + 3));
  }
  return hosts;
}

/// Inside the hosts another mesh serves, which has links to the ranks of the host only.
Backends MakeWorld(const std::vector<int>& hosts) {
  const int size = static_cast<int>(hosts.size());
  auto inside = ConnectAll(size);
  auto between = ConnectAll(size);
  Backends world;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    for (size_t peer = 0; peer < hosts.size(); ++peer) {
      if (hosts[peer] != hosts[rank]) {
        inside[rank][peer].Reset();
      }
    }
    const int self = static_cast<int>(rank);
    world.push_back(
        std::make_unique<HierarchicalBackend>(MakeGlooBackend(self, std::move(inside[rank])),
                                              MakeGlooBackend(self, std::move(between[rank])),
                                              hosts));
  }
  return world;
}

/// Uneven hosts, hosts with one rank, one host, one rank each, and ranks that are mixed.
const std::vector<std::vector<int>>& AllWorlds() {
  static const std::vector<std::vector<int>> worlds = {HostsOf({1}),
                                                       HostsOf({4}),
                                                       HostsOf({1, 1, 1}),
                                                       HostsOf({1, 3}),
                                                       HostsOf({3, 1}),
                                                       HostsOf({2, 5, 1}),
                                                       HostsOf({2, 2, 2, 2}),
                                                       {0, 1, 0, 2, 1, 0}};
  return worlds;
}

}  // namespace

TEST_CASE("hierarchical backend does every operation of any size on any hosts") {
  const std::vector<int> hosts = GENERATE(from_range(AllWorlds()));
  const int size = static_cast<int>(hosts.size());
  Backends world = MakeWorld(hosts);
  uint64_t number = 0;
  for (const Kind kind : kAllKinds) {
    for (const size_t count : {0u, 1u, 5u, 1'023u, 300'001u}) {
      for (const int root : {0, size / 2, size - 1}) {
        if (count > 10'000 && root != size / 2) {
          continue;  // For the time that it takes.
        }
        Case what = CaseOfBytes(kind, WholeWorld(size), count);
        what.root = root;
        what.in_place = root == 0;
        CHECK_NOTHROW(RunEverywhere(world, ++number, what));
      }
    }
  }
}

TEST_CASE("hierarchical backend reduces every type with every reduction") {
  const std::vector<int> hosts = GENERATE(from_range(AllWorlds()));
  const int size = static_cast<int>(hosts.size());
  Backends world = MakeWorld(hosts);
  uint64_t number = 0;
  for (const DType dtype : kAllTypes) {
    for (const Op op : {Op::kSum, Op::kAverage, Op::kProduct, Op::kMin, Op::kMax}) {
      if (dtype == DType::kBool && op == Op::kAverage) {
        continue;
      }
      for (const Kind kind : {Kind::kAllreduce, Kind::kReduceToRoot, Kind::kReduceScatter}) {
        Case what = CaseOfBytes(kind, WholeWorld(size), 37);
        what.what = {dtype, op, 1, 1, op == Op::kAverage ? size : 1};
        CHECK_NOTHROW(RunEverywhere(world, ++number, what));
      }
    }
  }
}

TEST_CASE("hierarchical backend fuses pieces, with zeros of who has joined") {
  const std::vector<int> hosts = HostsOf({2, 1, 2});
  Backends world = MakeWorld(hosts);
  for (uint64_t number = 1; number <= 10; ++number) {
    Case what = CaseOfBytes(Kind::kAllreduce, WholeWorld(5), 0);
    what.what = {number % 2 == 0 ? DType::kBF16 : DType::kI16, Op::kAverage, 1, 1, 5};
    what.counts = {3, 0, 300'001, 1, number * 1'000};
    what.joined = static_cast<int>(number % 5);
    what.unwilling = static_cast<int>(number / 2 % 5);
    CHECK_NOTHROW(RunEverywhere(world, number, what));
  }
}

TEST_CASE("hierarchical backend does not round half floats between its levels") {
  // 2048 + 1 is no half float: rounded on the first host, the ones would be lost.
  Backends world = MakeWorld(HostsOf({2, 1}));
  const std::vector<float> inputs = {2048, 1, 1};
  OnAllRanks(3, [&](int rank) {
    uint16_t value = kernels::F16FromFloat(inputs[static_cast<size_t>(rank)]);
    const Group group{WholeWorld(3), rank};
    const Piece piece{&value, &value, 1};
    const Status status = world[static_cast<size_t>(rank)]->Allreduce(
        {group, 1, Later()}, {&piece, 1}, {DType::kF16, Op::kSum});
    if (!status.ok() || value != kernels::F16FromFloat(2050)) {
      throw std::runtime_error("rounded: " + status.message());
    }
  });
}

TEST_CASE("hierarchical backend averages integers exactly over its levels") {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  Backends world = MakeWorld(HostsOf({2, 1}));
  const std::vector<int64_t> inputs = {kMost, kMost, kMost - 2};
  OnAllRanks(3, [&](int rank) {
    int64_t value = inputs[static_cast<size_t>(rank)];
    const Group group{WholeWorld(3), rank};
    const Piece piece{&value, &value, 1};
    const Status status = world[static_cast<size_t>(rank)]->Allreduce(
        {group, 1, Later()}, {&piece, 1}, {DType::kI64, Op::kAverage, 1, 1, 3});
    if (!status.ok() || value != kMost - 1) {
      throw std::runtime_error("not exact: " + status.message());
    }
  });
}

TEST_CASE("hierarchical backend runs any sequence of operations on any groups") {
  const uint64_t seed = GENERATE(range(1, 13));
  CAPTURE(seed);
  Random random(seed);
  std::vector<int> hosts(2 + random.Below(7));
  for (int& host : hosts) {
    host = static_cast<int>(random.Below(3));
  }
  if (seed % 2 == 0) {
    std::sort(hosts.begin(), hosts.end());
  }
  const int size = static_cast<int>(hosts.size());
  Backends world = MakeWorld(hosts);
  std::vector<Case> cases;
  for (int i = 0; i < 50; ++i) {
    cases.push_back(DrawCase(random, size, 60'000));
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

TEST_CASE("hierarchical backend abort ends every operation in whatever phase it is") {
  const Kind kind = GENERATE(from_range(kAllKinds));
  const size_t bytes = GENERATE(100, 600'000);
  for (uint64_t round = 0; round < 3; ++round) {
    Backends world = MakeWorld(HostsOf({1, 3}));
    Case what = CaseOfBytes(kind, WholeWorld(4), bytes);
    what.is_checked = false;
    AbortAfter(world, what, 2 + round * 3);
  }
}

TEST_CASE("hierarchical backend abort frees a rank that waits, inside a host or between them") {
  const int rank = GENERATE(0, 1, 2);
  Backends world = MakeWorld(HostsOf({1, 2}));
  const auto self = static_cast<size_t>(rank);
  const Case what = CaseOfBytes(Kind::kAllreduce, WholeWorld(3), 1'000);
  std::promise<void> started;
  auto stuck = std::async(std::launch::async, [&] {
    started.set_value();
    return RunCase(*world[self], rank, 1, Later(), what).status;
  });
  started.get_future().wait();
  world[self]->Abort();
  REQUIRE(stuck.wait_for(std::chrono::seconds(15)) == std::future_status::ready);
  CHECK(stuck.get().code() == StatusCode::kAborted);
  CHECK(RunCase(*world[self], rank, 2, Later(), CaseOfBytes(Kind::kBarrier, {rank}, 0))
            .status.code() == StatusCode::kAborted);
}

TEST_CASE("hierarchical backend names the rank that went away, on its host or another") {
  Backends world = MakeWorld(HostsOf({2, 2}));
  const Case what = CaseOfBytes(Kind::kAllreduce, WholeWorld(4), 1'000);
  const int gone = GENERATE(1, 2);
  world[static_cast<size_t>(gone)].reset();
  // Rank 0 leads the first host: 1 is its neighbour, 2 the other leader.
  const std::vector<int> ranks = gone == 1 ? std::vector<int>{0} : std::vector<int>{0, 1};
  std::vector<std::future<Status>> left;
  for (const int rank : ranks) {
    left.push_back(std::async(std::launch::async, [&, rank] {
      const auto deadline = Clock::now() + std::chrono::milliseconds(500);
      return RunCase(*world[static_cast<size_t>(rank)], rank, 1, deadline, what).status;
    }));
  }
  CHECK(left[0].get().code() == StatusCode::kFailed);
  CHECK(world[0]->suspects() == std::vector<int>{gone});
  const Case alone = CaseOfBytes(Kind::kBarrier, {0}, 0);
  CHECK(RunCase(*world[0], 0, 9, Later(), alone).status.code() == StatusCode::kFailed);
}

TEST_CASE("hierarchical backend names the rank that keeps others waiting") {
  Backends world = MakeWorld(HostsOf({1, 2}));
  const Case what = CaseOfBytes(Kind::kAllreduce, WholeWorld(3), 1'000);
  // Rank 2 is silent: its leader waits for it, and the other leader for that one.
  for (const int rank : {1, 0}) {
    const auto self = static_cast<size_t>(rank);
    const auto deadline = Clock::now() + std::chrono::milliseconds(50);
    CHECK(RunCase(*world[self], rank, 1, deadline, what).status.code() == StatusCode::kTimeout);
    CHECK(world[self]->suspects() == std::vector<int>{rank + 1});
  }
}

}  // namespace muster::worker
