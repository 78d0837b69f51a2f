#include "launcher/agent/order_queue.h"

#include <catch2/catch.hpp>
#include <vector>

namespace muster::launcher {
namespace {

v1::WorkerOrder World(uint64_t generation) {
  v1::WorkerOrder order;
  order.mutable_world()->set_generation(generation);
  return order;
}
v1::WorkerOrder Revoked(uint64_t generation) {
  v1::WorkerOrder order;
  order.mutable_revoked()->set_generation(generation);
  return order;
}
v1::WorkerOrder Pending(bool pending) {
  v1::WorkerOrder order;
  order.mutable_pending()->set_pending(pending);
  return order;
}
v1::WorkerOrder Joined() {
  v1::WorkerOrder order;
  order.mutable_joined();
  return order;
}
v1::WorkerOrder Refused() {
  v1::WorkerOrder order;
  order.mutable_refused();
  return order;
}

std::vector<v1::WorkerOrder::OrderCase> Cases(OrderQueue& queue) {
  std::vector<v1::WorkerOrder::OrderCase> cases;
  while (const auto order = queue.Pop()) {
    cases.push_back(order->order_case());
  }
  return cases;
}

}  // namespace

TEST_CASE("order queue keeps only the newest of worlds and revocations") {
  OrderQueue queue;
  queue.Push(World(1));
  queue.Push(Revoked(1));
  queue.Push(World(2));
  const auto order = queue.Pop();
  REQUIRE(order);
  CHECK(order->world().generation() == 2);
  CHECK_FALSE(queue.Pop());
}

TEST_CASE("order queue keeps the order of different kinds") {
  OrderQueue queue;
  queue.Push(Joined());
  queue.Push(World(1));
  queue.Push(Pending(true));
  CHECK(Cases(queue) ==
        std::vector{v1::WorkerOrder::kJoined, v1::WorkerOrder::kWorld, v1::WorkerOrder::kPending});
}

TEST_CASE("order queue drops a pending change of an older world") {
  OrderQueue queue;
  queue.Push(Pending(true));
  queue.Push(World(2));
  CHECK(Cases(queue) == std::vector{v1::WorkerOrder::kWorld});
}

TEST_CASE("order queue drops everything for a refusal") {
  OrderQueue queue;
  queue.Push(Joined());
  queue.Push(World(1));
  queue.Push(Refused());
  CHECK(Cases(queue) == std::vector{v1::WorkerOrder::kRefused});
}

TEST_CASE("order queue stays small whatever is pushed") {
  OrderQueue queue;
  for (uint64_t i = 1; i < 1000; ++i) {
    queue.Push(World(i));
    queue.Push(Pending(i % 2 == 0));
    queue.Push(Joined());
    CHECK(queue.size() <= 3);
  }
}

}  // namespace muster::launcher
