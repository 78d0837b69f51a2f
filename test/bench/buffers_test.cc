#include "bench/buffers.h"

#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>

namespace muster::bench {
namespace {

// The buffers of all ranks, in one process: a contestant that computes right by definition.
struct World {
  World(const Order& order, int size) {
    for (int rank = 0; rank < size; ++rank) {
      ranks.push_back(std::make_unique<Buffers>(order, rank, size));
    }
  }

  void Fill(size_t salt) {
    for (const auto& rank : ranks) {
      rank->Fill(salt);
    }
  }

  void Run(Operation operation, size_t tensor) {
    const size_t size = ranks.size();
    const Layout layout = ranks[0]->layout();
    std::vector<std::vector<float>> in;
    std::vector<float> sum(layout.in);
    for (const auto& rank : ranks) {
      in.emplace_back(rank->in(tensor), rank->in(tensor) + layout.in);
      for (size_t i = 0; i < layout.in; ++i) {
        sum[i] += in.back()[i];
      }
    }
    for (size_t rank = 0; rank < size; ++rank) {
      for (size_t i = 0; i < layout.out; ++i) {
        const size_t source = i / layout.part;
        float& out = ranks[rank]->out(tensor)[i];
        switch (operation) {
          case Operation::kAllreduce:
            out = sum[i];
            break;
          case Operation::kBroadcast:
            out = in[0][i];
            break;
          case Operation::kAllgather:
            out = in[source][i % layout.part];
            break;
          case Operation::kAlltoall:
            out = in[source][rank * layout.part + i % layout.part];
            break;
          case Operation::kReducescatter:
            out = sum[rank * layout.part + i];
            break;
        }
      }
    }
  }

  std::vector<std::unique_ptr<Buffers>> ranks;
};

const std::vector<Operation>& AllOperations() {
  static const std::vector<Operation> all = {Operation::kAllreduce,
                                             Operation::kAllgather,
                                             Operation::kBroadcast,
                                             Operation::kAlltoall,
                                             Operation::kReducescatter};
  return all;
}

}  // namespace

TEST_CASE("buffers take what an operation gives and refuse every single wrong element") {
  for (const Operation operation : AllOperations()) {
    for (const int size : {1, 2, 3, 8}) {
      for (const size_t bytes : {4, 12, 4096, 4 * 1025, 40'004}) {
        INFO(Name(operation) << " of " << bytes << " bytes, " << size << " ranks");
        World world({.operation = operation, .bytes = bytes, .tensors = 2}, size);
        world.Fill(7);
        world.Run(operation, 0);
        world.Run(operation, 1);
        for (const auto& rank : world.ranks) {
          CHECK(rank->Mistake(7).empty());
          for (size_t i = 0; i < rank->layout().out; i += 511) {
            float& value = rank->out(1)[i];
            const float right = value;
            value += 1;
            CHECK_FALSE(rank->Mistake(7).empty());
            value = right;
          }
          CHECK_FALSE(rank->Mistake(8).empty());
        }
      }
    }
  }
}

TEST_CASE("buffers that nobody worked on are a mistake") {
  for (const Operation operation : AllOperations()) {
    for (const Pace pace : {Pace::kBarrier, Pace::kBackToBack}) {
      INFO(Name(operation));
      // With one rank an operation in place has nothing to do, so two; and not the root.
      Buffers buffers({.operation = operation, .bytes = 4096, .pace = pace}, 1, 2);
      buffers.Fill(1);
      CHECK_FALSE(buffers.Mistake(1).empty());
    }
  }
}

TEST_CASE("buffers lie where the order wants them in a page") {
  for (const size_t offset : {0, 16, 64, 2048}) {
    const Buffers buffers(
        {.operation = Operation::kAllgather, .bytes = 8192, .tensors = 3, .offset = offset}, 0, 2);
    CHECK(buffers.count() == 3);
    for (size_t i = 0; i < 3; ++i) {
      CHECK(reinterpret_cast<uintptr_t>(buffers.in(i)) % 4096 == offset);
      CHECK(reinterpret_cast<uintptr_t>(buffers.out(i)) % 4096 == offset);
    }
  }
}

TEST_CASE("an allreduce is in place with fresh data and apart back to back") {
  const Buffers fresh({.operation = Operation::kAllreduce, .pace = Pace::kBarrier}, 0, 2);
  CHECK(fresh.in(0) == fresh.out(0));
  const Buffers same({.operation = Operation::kAllreduce, .pace = Pace::kBackToBack}, 0, 2);
  CHECK(same.in(0) != same.out(0));
}

TEST_CASE("a layout divides the larger side, and gives each rank one float at least") {
  CHECK(LayoutOf(Operation::kAllreduce, 4096, 3) == Layout{.in = 1024, .out = 1024, .part = 1024});
  CHECK(LayoutOf(Operation::kAllgather, 4096, 4) == Layout{.in = 256, .out = 1024, .part = 256});
  CHECK(LayoutOf(Operation::kReducescatter, 4, 8) == Layout{.in = 8, .out = 1, .part = 1});
  CHECK(LayoutOf(Operation::kAlltoall, 4096, 3) == Layout{.in = 1023, .out = 1023, .part = 341});
}

}  // namespace muster::bench
