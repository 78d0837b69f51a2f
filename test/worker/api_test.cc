// The public functions, in a process that no launcher has started.

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <future>
#include <vector>

#include "muster/muster.h"

namespace muster {
namespace {

constexpr DType kF32 = DType::kF32;

/// The exit code of a child that runs `body`.
int InChild(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::_exit(body());
  }
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("api throws before init") {
  shutdown();
  CHECK_FALSE(is_initialized());
  CHECK_THROWS_WITH(rank(), Catch::Contains("muster::init()"));
  CHECK_THROWS_AS(barrier(), Error);
  CHECK_THROWS_AS(Handle().wait(), Error);
}

TEST_CASE("api without a launcher is a world of one") {
  init();
  init();  // Does nothing.
  CHECK(is_initialized());
  CHECK(rank() == 0);
  CHECK(size() == 1);
  CHECK(local_rank() == 0);
  CHECK(local_size() == 1);
  CHECK(cross_rank() == 0);
  CHECK(cross_size() == 1);
  CHECK(slot() == 0);
  std::vector<float> in = {1, 2, 3};
  std::vector<float> out(3);
  allreduce({in.data(), kF32, {3}}, {out.data(), kF32, {3}}, {.prescale = 2});
  CHECK(out == std::vector<float>{2, 4, 6});
  std::vector<float> gathered;
  allgather({in.data(), kF32, {3}}, [&](const Shape& shape, DType, const Device&) -> void* {
    gathered.resize(static_cast<size_t>(shape[0]));
    return gathered.data();
  });
  CHECK(gathered == in);
  broadcast({in.data(), kF32, {3}}, 0);
  barrier();
  CHECK(broadcast_object("some bytes", 0) == "some bytes");
  CHECK(broadcast_object("", 0, {.name = "empty"}).empty());
}

TEST_CASE("api tells a wrong call by InvalidCollective and goes on") {
  init();
  std::vector<float> data(4);
  const Tensor four = {data.data(), kF32, {4}};
  CHECK_THROWS_AS(allreduce(four, {data.data(), kF32, {3}}), InvalidCollective);
  CHECK_THROWS_AS(allreduce(four, {data.data(), DType::kI32, {4}}), InvalidCollective);
  CHECK_THROWS_AS(allreduce({nullptr, kF32, {4}}, four), InvalidCollective);
  CHECK_THROWS_AS(allreduce({data.data(), kF32, {-1}}, four), InvalidCollective);
  CHECK_THROWS_AS(allreduce(four, four, {.op = Op::kAdasum, .prescale = 2}), InvalidCollective);
  CHECK_NOTHROW(allreduce(four, four, {.op = Op::kAdasum}));
  CHECK_THROWS_AS(allreduce(four, four, {.set = {7}}), InvalidCollective);
  CHECK_THROWS_AS(broadcast(four, 1), InvalidCollective);
  CHECK_THROWS_AS(allgather(four, nullptr), InvalidCollective);
  CHECK_THROWS_AS(allgather({data.data(), kF32, {}}, [&](auto&&...) { return data.data(); }),
                  InvalidCollective);
  CHECK_THROWS_AS(allreduce({data.data(), kF32, {1}, {.kind = 1}}, {data.data(), kF32, {1}}),
                  InvalidCollective);
  CHECK_THROWS_AS(allreduce({data.data(), kF32, Shape(65, 1)}, {data.data(), kF32, Shape(65, 1)}),
                  InvalidCollective);
  CHECK_THROWS_AS(barrier({.name = std::string(5000, 'x')}), InvalidCollective);
  const Tensor odd{data.data(), static_cast<DType>(77), {1}};
  CHECK_THROWS_AS(allreduce(odd, odd), InvalidCollective);
  CHECK_THROWS_AS(allreduce(four, odd), InvalidCollective);
  CHECK_THROWS_AS(broadcast(odd, 0), InvalidCollective);
  CHECK_THROWS_AS(allreduce(four, four, {.op = static_cast<Op>(77)}), InvalidCollective);
  CHECK_NOTHROW(allreduce(four, four));
}

TEST_CASE("api calls a handle's callback once, before or after completion") {
  init();
  float value = 1;
  Handle handle = allreduce_async({&value, kF32, {}}, {&value, kF32, {}});
  std::promise<std::exception_ptr> early;
  handle.then([&](std::exception_ptr error) { early.set_value(error); });
  auto future = early.get_future();
  REQUIRE(future.wait_for(std::chrono::seconds(10)) == std::future_status::ready);
  CHECK_FALSE(future.get());
  handle.wait();
  CHECK(handle.poll());
  bool late = false;
  handle.then([&](std::exception_ptr) { late = true; });
  CHECK(late);
  Handle wrong = broadcast_async({&value, kF32, {}}, 9);
  CHECK_THROWS_AS(wrong.wait(), InvalidCollective);
  CHECK_THROWS_AS(wrong.wait(), InvalidCollective);  // May be asked again.
}

TEST_CASE("api is inert in a forked child") {
  init();
  CHECK(InChild([] {
          try {
            rank();
          } catch (const Error&) {
            try {
              init();
            } catch (const Error&) {
              shutdown();
              return is_initialized() ? 3 : 0;
            }
            return 2;
          }
          return 1;
        }) == 0);
  CHECK(rank() == 0);
}

TEST_CASE("api can be initialized again after shutdown") {
  init();
  shutdown();
  CHECK_FALSE(is_initialized());
  CHECK_THROWS_AS(rank(), Error);
  init();
  barrier();
  shutdown();
}

TEST_CASE("api refuses to run alone when an agent is named but does not answer") {
  shutdown();
  ::setenv("MUSTER_AGENT_DIRECTORY", "/nowhere/at-all", 1);
  CHECK_THROWS_WITH(init(), Catch::Contains("MUSTER_WORKER_KEY"));
  ::setenv("MUSTER_WORKER_KEY", "key", 1);
  CHECK_THROWS_WITH(init(), Catch::Contains("MUSTER_INCARNATION"));
  ::setenv("MUSTER_INCARNATION", "5", 1);
  ::setenv("MUSTER_WORKER_KEY", "key", 1);
  CHECK_THROWS_WITH(init(), Catch::Contains("/nowhere/at-all"));
  CHECK(std::getenv("MUSTER_WORKER_KEY") == nullptr);
  CHECK_FALSE(is_initialized());
  for (const char* name : {"MUSTER_AGENT_DIRECTORY", "MUSTER_INCARNATION"}) {
    ::unsetenv(name);
  }
}

}  // namespace muster
