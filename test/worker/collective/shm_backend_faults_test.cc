#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <iostream>
#include <random>
#include <thread>

#include "test/worker/collective/folded_memory.h"
#include "test/worker/collective/shm_world.h"

// Aborts, deadlines and deaths in every operation and phase.

namespace muster::worker {
namespace {

constexpr int kKinds = 7;

/// Runs operation number `kind` with buffers of `count` floats for each member.
Status RunKind(
    int kind, const OpContext& context, Backend& backend, char* in, char* out, size_t count) {
  const auto size = static_cast<size_t>(context.group.size());
  const Reduction what{DType::kF32, Op::kSum};
  const Piece piece{in, out, count};
  const std::vector<size_t> counts(size, count / size);
  const std::vector<size_t> bytes(size, count / size * sizeof(float));
  switch (kind) {
    case 0:
      return backend.Allreduce(context, {&piece, 1}, what);
    case 1:
      return backend.ReduceScatter(context, in, out, counts, what);
    case 2:
      return backend.Allgatherv(context, in, out, bytes);
    case 3:
      return backend.Broadcast(context, out, count * sizeof(float), context.group.size() - 1);
    case 4:
      return backend.Alltoallv(context, in, bytes, out, bytes);
    case 5:
      return backend.ReduceToRoot(context, {&piece, 1}, what, out, 0);
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
    victim.status = RunKind(
        kind, {group, number, In(kLong)}, world.backend(member), in.data(), out.data(), count);
  }
  out.assign(out.size(), 'p');
  return victim;
}

TEST_CASE("shm backend ends every operation in any phase on an abort, and lets go of the memory") {
  const int members = GENERATE(1, 3, 8);
  const int kind = GENERATE(range(0, kKinds));
  const size_t count = GENERATE(1, 200'000);
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
  CHECK(
      RunKind(kind, {group, 1, In(kLong)}, world.backend(0), in.data(), out.data(), count).code() ==
      StatusCode::kAborted);
}

TEST_CASE("shm backend hears an abort in the middle of a large operation") {
  // 32 GiB are many seconds of copying; a few MiB of them are done.
  const int kind = GENERATE(0, 2, 3);
  const int members = GENERATE(1, 2);
  if (kind == 3 && members == 1) {
    return;  // Nothing to do.
  }
  constexpr size_t kCount = size_t{8} << 30;
  ShmWorld world(members);
  const FoldedMemory in(kCount * sizeof(float));
  // Of each member, so that no two write the same memory.
  const FoldedMemory outs[2] = {FoldedMemory(kCount * sizeof(float)),
                                FoldedMemory(members == 1 ? 1 : kCount * sizeof(float))};
  std::fill_n(in.data(), FoldedMemory::kFold, 1);
  std::atomic<int> begun{0};
  std::jthread aborter([&] {
    while (begun < members) {
      std::this_thread::yield();
    }
    Random random(static_cast<uint64_t>(kind));
    Linger(random, 3'000'000);
    for (const int member : world.all()) {
      world.backend(member).Abort();
    }
  });
  const auto statuses = world.Run([&](int member, Backend& backend) {
    const Group group = GroupOf(world.all(), member);
    begun.fetch_add(1);
    char* source = kind == 3 && member == members - 1 ? in.data() : outs[member].data();
    return RunKind(kind, {group, 1, In(kLong)}, backend, in.data(), source, kCount);
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
  const int missing = members - 1;  // The root of the broadcast.
  std::atomic<int> finished{0};
  const auto statuses = world.Run([&](int member, Backend& backend) {
    if (member == missing) {
      return Status::Ok();
    }
    const Group group = GroupOf(world.all(), member);
    Bytes in(count * sizeof(float));
    Bytes out(in.size());
    // The first comes when the others have done all they can.
    const auto through = [&] {
      int asleep = finished.load();
      for (int i = 1; i < missing; ++i) {
        asleep += world.bell(i).state.load() == BellState::kAsleep ? 1 : 0;
      }
      return asleep == missing - 1;
    };
    while (member == 0 && !through()) {
      std::this_thread::yield();
    }
    const std::chrono::milliseconds patience = member == 0 ? kBrief : kLong;
    Status status = RunKind(kind, {group, 1, In(patience)}, backend, in.data(), out.data(), count);
    finished.fetch_add(1);
    for (int i = 1; member == 0 && i < missing; ++i) {
      world.backend(i).Abort();
    }
    return status;
  });
  CHECK(statuses[0].code() == StatusCode::kTimeout);
  CHECK(world.backend(0).suspects() == std::vector<int>{5 + 2 * missing});
}

TEST_CASE("shm backend begins nothing after a failure, so that no peer takes what was not given") {
  // More than the slots hold: the root can give the first part only, and gives up.
  const size_t bytes = kSegmentDataBytes + 1000;
  ShmWorld world(2);
  Bytes sent(bytes, 's');
  const Group root = GroupOf(world.all(), 0);
  const Group reader = GroupOf(world.all(), 1);
  REQUIRE(world.backend(0).Broadcast({root, 5, In(kBrief)}, sent.data(), bytes, 0).code() ==
          StatusCode::kTimeout);
  // The next one of the log, as an engine that goes on by mistake would run it.
  CHECK(world.backend(0).Broadcast({root, 6, In(kBrief)}, sent.data(), bytes, 0).code() ==
        StatusCode::kTimeout);
  CHECK(world.backend(0).suspects() == std::vector<int>{7});
  Bytes received(bytes, 'x');
  CHECK(world.backend(1).Broadcast({reader, 5, In(kBrief)}, received.data(), bytes, 0).code() ==
        StatusCode::kTimeout);
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
        status = RunKind(kind,
                         {group, number, In(std::chrono::milliseconds(400))},
                         *backend,
                         in.data(),
                         out.data(),
                         count);
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
