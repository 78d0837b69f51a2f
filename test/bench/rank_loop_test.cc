#include "bench/rank_loop.h"

#include <catch2/catch.hpp>
#include <stdexcept>

namespace muster::bench {
namespace {

// A world of one, whose allreduce is right until it is told otherwise.
class LoneRank : public RankEngine {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void Barrier() override { ++barriers; }
  std::function<void()> Prepare(const Order& order, Buffers& buffers) override {
    if (order.operation != Operation::kAllreduce) {
      throw std::invalid_argument("only allreduce");
    }
    return [this, &buffers] {
      if (++calls == broken_at) {
        buffers.out(0)[buffers.layout().out - 1] += 1;
        return;
      }
      std::copy_n(buffers.in(0), buffers.layout().in, buffers.out(0));
    };
  }

  int barriers = 0;
  int calls = 0;
  int broken_at = 0;
};

}  // namespace

TEST_CASE("an order's times are those of its iterations, without the warm-ups") {
  LoneRank rank;
  const Report report = Execute(rank, {.bytes = 4096, .iterations = 5, .warmups = 2});
  CHECK(report.error.empty());
  CHECK(report.times_ns.size() == 5);
  CHECK(rank.calls == 7);
  CHECK(rank.barriers == 8);
}

TEST_CASE("back to back there is one barrier before and one after") {
  LoneRank rank;
  const Report report =
      Execute(rank, {.bytes = 4, .iterations = 50, .warmups = 3, .pace = Pace::kBackToBack});
  CHECK(report.error.empty());
  CHECK(report.times_ns.size() == 50);
  CHECK(rank.barriers == 2);
}

TEST_CASE("a wrong result is the order's error") {
  for (const Pace pace : {Pace::kBarrier, Pace::kBackToBack}) {
    // The last iteration is verified at either pace.
    LoneRank rank;
    rank.broken_at = 7;
    const Report report =
        Execute(rank, {.bytes = 4096, .iterations = 5, .warmups = 2, .pace = pace});
    CHECK(report.error.find("a wrong result in tensor 0: element 1023 of 1024") !=
          std::string::npos);
    CHECK(report.times_ns.empty());
  }
}

TEST_CASE("what a contestant does not have is the order's error") {
  LoneRank rank;
  CHECK(Execute(rank, {.operation = Operation::kAlltoall}).error == "only allreduce");
}

}  // namespace muster::bench
