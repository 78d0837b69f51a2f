#include "worker/executor.h"

#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <vector>

namespace muster::worker {
namespace {

constexpr std::chrono::seconds kHangBound{20};

TEST_CASE(
    "executor runs jobs in the order in which they were posted, the last ones while it stops") {
  std::vector<int> order;
  Executor executor;
  executor.Start();
  for (int i = 0; i < 100; ++i) {
    executor.Post([&order, i] { order.push_back(i); });
  }
  executor.Stop();
  REQUIRE(order.size() == 100);
  for (int i = 0; i < 100; ++i) {
    CHECK(order[static_cast<size_t>(i)] == i);
  }
}

// exit() in a callback stops it from there.
TEST_CASE("executor may be stopped by a job") {
  std::promise<void> stopped;
  Executor executor;
  executor.Start();
  executor.Post([&] {
    executor.Stop();
    stopped.set_value();
  });
  CHECK(stopped.get_future().wait_for(kHangBound) == std::future_status::ready);
}

}  // namespace
}  // namespace muster::worker
