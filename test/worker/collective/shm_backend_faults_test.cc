#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <iostream>
#include <random>
#include <thread>

#include "test/worker/collective/shm_world.h"

// Aborts, deadlines and deaths in every operation and phase.

namespace muster::worker {
namespace {

constexpr int kKinds = 7;

/// Runs operation number `kind` with buffers of `count` floats for each member.
Status RunKind(
    int kind, const OpContext& context, Backend& backend, Bytes& in, Bytes& out, size_t count) {
  const auto size = static_cast<size_t>(context.group.size());
  const Reduction what{DType::kF32, Op::kSum};
  const Piece piece{in.data(), out.data(), count};
  const std::vector<size_t> counts(size, count / size);
  const std::vector<size_t> bytes(size, count / size * sizeof(float));
  switch (kind) {
    case 0:
      return backend.Allreduce(context, {&piece, 1}, what);
    case 1:
      return backend.ReduceScatter(context, in.data(), out.data(), counts, what);
    case 2:
      return backend.Allgatherv(context, in.data(), out.data(), bytes);
    case 3:
      return backend.Broadcast(
          context, out.data(), count * sizeof(float), context.group.size() - 1);
    case 4:
      return backend.Alltoallv(context, in.data(), bytes, out.data(), bytes);
    case 5:
      return backend.ReduceToRoot(context, {&piece, 1}, what, out.data(), 0);
    default:
      return backend.Barrier(context);
  }
}

/// Runs operations until one fails; then fills the memory it had, and says if that was touched.
struct Victim {
  Status status;
  bool touched = false;
};

Victim RunUntilItFails(int kind, ShmWorld& world, int member, size_t count, Bytes& out) {
  Bell bell(world.bell(member));
  bell.Enter();
  const Group group = GroupOf(world.all(), member);
  Bytes in(count * sizeof(float), 1);
  Victim victim;
  for (uint64_t number = 1; victim.status.ok(); ++number) {
    victim.status =
        RunKind(kind, {group, number, In(kLong)}, world.backend(member), in, out, count);
  }
  out.assign(out.size(), 'p');
  return victim;
}

TEST_CASE("shm backend ends every operation in any phase on an abort, and lets go of the memory") {
  const int members = GENERATE(1, 2, 4, 8);
  const int kind = GENERATE(range(0, kKinds));
  const size_t count = GENERATE(1, 500'000);
  static const uint64_t seed = std::random_device()();
  INFO("seed " << seed << " kind " << kind);
  Random random(seed + static_cast<uint64_t>(kind));
  ShmWorld world(members);
  std::vector<Bytes> outs(static_cast<size_t>(members), Bytes(count * sizeof(float)));
  std::jthread aborter([&] {
    Linger(random, 3'000'000);
    for (int member = 0; member < members; ++member) {
      world.backend(member).Abort();
    }
  });
  const auto victims = OnRanks<Victim>(members, [&](int member) {
    return RunUntilItFails(kind, world, member, count, outs[static_cast<size_t>(member)]);
  });
  for (const Victim& victim : victims) {
    CHECK(victim.status.code() == StatusCode::kAborted);
  }
  for (const Bytes& out : outs) {
    CHECK(std::all_of(out.begin(), out.end(), [](char byte) { return byte == 'p'; }));
  }
}

TEST_CASE("shm backend does nothing any more after an abort") {
  const int kind = GENERATE(range(0, kKinds));
  const int members = GENERATE(1, 2);
  ShmWorld world(members);
  world.backend(0).Abort();
  Bytes in(400);
  Bytes out(400);
  const Group group = GroupOf(world.all(), 0);
  const size_t count = GENERATE(0, 100);
  CHECK(RunKind(kind, {group, 1, In(kLong)}, world.backend(0), in, out, count).code() ==
        StatusCode::kAborted);
}

TEST_CASE("shm backend hears an abort in the middle of a large copy within a chunk") {
  // 64 MiB would be tens of milliseconds; what is left of it is not done.
  const int members = GENERATE(1, 2);
  const size_t count = 16u << 20;
  ShmWorld world(members);
  Bytes in(count * sizeof(float), 0);
  std::vector<Bytes> outs(static_cast<size_t>(members), Bytes(in.size(), 'x'));
  const auto statuses = world.Run([&](int member, Backend& backend) {
    char* out = outs[static_cast<size_t>(member)].data();
    const Group group = GroupOf(world.all(), member);
    const Piece piece{in.data(), out, count};
    std::jthread aborter([&, member] {
      auto* begun = reinterpret_cast<std::atomic<char>*>(out);
      while (begun->load(std::memory_order_relaxed) == 'x') {
        std::this_thread::yield();
      }
      world.backend(member).Abort();
    });
    return backend.Allreduce({group, 1, In(kLong)}, {&piece, 1}, {DType::kU8, Op::kMax});
  });
  for (const Status& status : statuses) {
    CHECK(status.code() == StatusCode::kAborted);
  }
}

TEST_CASE("shm backend names who keeps the others waiting") {
  const int kind = GENERATE(range(0, kKinds));
  const int members = GENERATE(2, 3, 8);
  const size_t count = GENERATE(8, 1'000'000);
  ShmWorld world(members);
  // The last member does not come. It is the root of the broadcast; the first one is the other's.
  const int missing = members - 1;
  std::vector<std::vector<int>> suspects(static_cast<size_t>(members));
  const auto statuses = world.Run([&](int member, Backend& backend) {
    if (member == missing) {
      return Status::Ok();
    }
    const Group group = GroupOf(world.all(), member);
    Bytes in(count * sizeof(float));
    Bytes out(in.size());
    Status status = RunKind(kind, {group, 1, In(kBrief)}, backend, in, out, count);
    suspects[static_cast<size_t>(member)] = backend.suspects();
    return status;
  });
  for (int member = 0; member < missing; ++member) {
    const auto at = static_cast<size_t>(member);
    // Who only gives to the root, and it fits the slots, is through.
    const bool through = kind == 5 && member != 0 && count == 8;
    CHECK(statuses[at].code() == (through ? StatusCode::kOk : StatusCode::kTimeout));
    const bool waits_for_root = kind == 5 && member != 0;
    if (!through) {
      CHECK(suspects[at] == std::vector<int>{waits_for_root ? 5 : 5 + 2 * missing});
    }
  }
}

TEST_CASE("shm backend survives a member that is killed at any instruction") {
  static const uint64_t seed = std::random_device()();
  std::cout << "shm_backend_faults_test seed " << seed << std::endl;
  const int kind = GENERATE(range(0, kKinds));
  Random random(seed + static_cast<uint64_t>(kind));
  const size_t count = random.Below(2) == 0 ? 100 : 300'000;
  const UniqueFd memory = MakeMemory(SegmentBytes(3));
  std::vector<pid_t> children;
  for (int member = 0; member < 3; ++member) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      std::shared_ptr<Segment> segment = std::move(Segment::Map(memory, 3).value());
      const auto backend = MakeShmBackend(segment, WorldRanks(3), member);
      Bell(segment->bell(member)).Enter();
      const Group group = GroupOf({0, 1, 2}, member);
      Bytes in(count * sizeof(float));
      Bytes out(in.size());
      Status status;
      for (uint64_t number = 1; status.ok(); ++number) {
        status = RunKind(
            kind, {group, number, In(std::chrono::milliseconds(400))}, *backend, in, out, count);
      }
      // The dead one, or who waits for it in turn.
      ::_exit(status.code() == StatusCode::kTimeout && !backend->suspects().empty() ? 0 : 1);
    }
    children.push_back(child);
  }
  Linger(random, 30'000'000);
  const size_t killed = random.Below(3);
  REQUIRE(::kill(children[killed], SIGKILL) == 0);
  for (size_t i = 0; i < children.size(); ++i) {
    int status = -1;
    REQUIRE(::waitpid(children[i], &status, 0) == children[i]);
    CHECK((i == killed ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0));
  }
}

}  // namespace
}  // namespace muster::worker
