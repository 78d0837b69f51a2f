#include "test/sim/job/fiber.h"

#include <catch2/catch.hpp>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace muster::sim {
namespace {

TEST_CASE("a fiber runs from one resume to its next yield") {
  std::vector<int> order;
  Fiber* self = nullptr;
  Fiber fiber([&] {
    order.push_back(1);
    self->Yield();
    order.push_back(3);
  });
  self = &fiber;
  CHECK_FALSE(fiber.started());
  fiber.Resume();
  CHECK(fiber.started());
  CHECK_FALSE(fiber.done());
  order.push_back(2);
  fiber.Resume();
  CHECK(fiber.done());
  CHECK(order == std::vector<int>{1, 2, 3});
}

TEST_CASE("a fiber that never began may go") {
  bool ran = false;
  {
    Fiber fiber([&] { ran = true; });
  }
  CHECK_FALSE(ran);
}

TEST_CASE("what is thrown in a fiber is caught there") {
  std::string caught;
  Fiber fiber([&] {
    try {
      throw std::runtime_error("inside");
    } catch (const std::exception& error) {
      caught = error.what();
    }
  });
  fiber.Resume();
  CHECK(caught == "inside");
}

// Each of them handles an exception of its own while the others run.
TEST_CASE("fibers yield in the middle of handling an exception") {
  std::vector<std::string> caught(2);
  std::vector<std::unique_ptr<Fiber>> fibers;
  for (size_t i = 0; i < 2; ++i) {
    fibers.push_back(std::make_unique<Fiber>([&, i] {
      try {
        throw std::runtime_error(std::to_string(i));
      } catch (...) {
        fibers[i]->Yield();
        try {
          throw;  // The one that this fiber handles.
        } catch (const std::exception& error) {
          caught[i] = error.what();
        }
      }
    }));
  }
  try {
    throw std::runtime_error("outside");
  } catch (const std::exception& outside) {
    fibers[0]->Resume();
    fibers[1]->Resume();
    fibers[0]->Resume();
    fibers[1]->Resume();
    CHECK(std::string(outside.what()) == "outside");
    CHECK_THROWS_WITH([] { throw; }(), "outside");
  }
  CHECK(caught == std::vector<std::string>{"0", "1"});
}

TEST_CASE("an exception crosses frames below a yield") {
  struct Ends {};
  Fiber* self = nullptr;
  bool ended = false;
  const auto deep = [&](auto again, int depth) -> void {
    if (depth == 0) {
      self->Yield();
      throw Ends{};
    }
    again(again, depth - 1);
  };
  Fiber fiber([&] {
    try {
      deep(deep, 20);
    } catch (const Ends&) {
      ended = true;
    }
  });
  self = &fiber;
  fiber.Resume();
  CHECK_FALSE(ended);
  fiber.Resume();
  CHECK(ended);
}

}  // namespace
}  // namespace muster::sim
