#include <catch2/catch.hpp>
#include <iostream>
#include <random>
#include <thread>

#include "test/worker/collective/shm_world.h"

// Random sequences of operations, each of a random group, with ranks that dawdle at random.

namespace muster::worker {
namespace {

enum class Kind { kAllreduce, kScatter, kGather, kBroadcast, kAlltoall, kToRoot, kBarrier };
constexpr int kKinds = 7;

struct Call {
  Kind kind;
  std::vector<int> members;
  size_t count;  // Of each member: floats, or bytes of each part.
  int root;
  uint64_t seed;
};

std::vector<Call> RandomCalls(Random& random, int members, int calls) {
  std::vector<Call> all;
  for (int i = 0; i < calls; ++i) {
    Call call;
    call.kind = static_cast<Kind>(random.Below(kKinds));
    while (call.members.empty()) {
      const bool everyone = random.Below(2) == 0;
      for (int member = 0; member < members; ++member) {
        if (everyone || random.Below(2) == 0) {
          call.members.push_back(member);
        }
      }
    }
    const size_t bounds[] = {3, 300, 30'000, 400'000};
    call.count = random.Below(bounds[random.Below(random.Below(5) == 0 ? 4 : 3)]);
    call.root = static_cast<int>(random.Below(call.members.size()));
    call.seed = random.Next();
    all.push_back(std::move(call));
  }
  return all;
}

Bytes InputOf(const Call& call, size_t index, size_t bytes) {
  Random random(call.seed + index);
  return RandomBytes(random, bytes);
}

std::vector<Bytes> AllInputs(const Call& call, size_t bytes) {
  std::vector<Bytes> inputs;
  for (size_t i = 0; i < call.members.size(); ++i) {
    inputs.push_back(InputOf(call, i, bytes));
  }
  return inputs;
}

constexpr Reduction kSum{DType::kF32, Op::kSum};

/// Of a rank that is in the group: runs the call, and says what is wrong.
std::string RunReduction(const Call& call, const OpContext& context, Backend& backend) {
  const auto self = static_cast<size_t>(context.group.self);
  const size_t size = call.members.size();
  const size_t bytes = call.count * sizeof(float);
  Bytes data = InputOf(call, self, bytes);
  Bytes expected = Reduced(kSum, AllInputs(call, bytes), call.count);
  Status status;
  Bytes result(bytes, 'x');
  if (call.kind == Kind::kAllreduce) {
    const Piece piece{data.data(), result.data(), call.count};
    status = backend.Allreduce(context, {&piece, 1}, kSum);
  } else if (call.kind == Kind::kToRoot) {
    const Piece piece{data.data(), nullptr, call.count};
    status = backend.ReduceToRoot(context, {&piece, 1}, kSum, result.data(), call.root);
    if (context.group.self != call.root) {
      expected.assign(bytes, 'x');
    }
  } else {
    std::vector<size_t> counts(size, call.count / size);
    counts[0] += call.count % size;
    const size_t begin = self == 0 ? 0 : counts[0] + (self - 1) * counts[1];
    result.resize(counts[self] * sizeof(float));
    status = backend.ReduceScatter(context, data.data(), result.data(), counts, kSum);
    expected = Bytes(
        expected.begin() + static_cast<std::ptrdiff_t>(begin * sizeof(float)),
        expected.begin() + static_cast<std::ptrdiff_t>((begin + counts[self]) * sizeof(float)));
  }
  return !status.ok() ? status.message() : result == expected ? "" : "other bits";
}

std::string RunMove(const Call& call, const OpContext& context, Backend& backend) {
  const auto self = static_cast<size_t>(context.group.self);
  const size_t size = call.members.size();
  Bytes expected;
  Bytes result;
  Status status;
  if (call.kind == Kind::kBroadcast) {
    expected = InputOf(call, static_cast<size_t>(call.root), call.count);
    result = context.group.self == call.root ? expected : Bytes(call.count, 'x');
    status = backend.Broadcast(context, result.data(), call.count, call.root);
  } else if (call.kind == Kind::kGather) {
    const std::vector<size_t> counts(size, call.count);
    for (const Bytes& input : AllInputs(call, call.count)) {
      expected.insert(expected.end(), input.begin(), input.end());
    }
    const Bytes data = InputOf(call, self, call.count);
    result.assign(expected.size(), 'x');
    status = backend.Allgatherv(context, data.data(), result.data(), counts);
  } else if (call.kind == Kind::kAlltoall) {
    // Member i sends i times its part to everyone.
    std::vector<size_t> receives;
    const std::vector<size_t> sends(size, self * call.count);
    for (size_t i = 0; i < size; ++i) {
      receives.push_back(i * call.count);
      const Bytes input = InputOf(call, i, size * i * call.count);
      const auto begin = input.begin() + static_cast<std::ptrdiff_t>(self * i * call.count);
      expected.insert(expected.end(), begin, begin + static_cast<std::ptrdiff_t>(i * call.count));
    }
    const Bytes data = InputOf(call, self, size * self * call.count);
    result.assign(expected.size(), 'x');
    status = backend.Alltoallv(context, data.data(), sends, result.data(), receives);
  } else {
    status = backend.Barrier(context);
  }
  return !status.ok() ? status.message() : result == expected ? "" : "other bits";
}

void Dawdle(Random& random) {
  const uint64_t kind = random.Below(6);
  for (uint64_t i = 0; kind == 0 && i < random.Below(20); ++i) {
    std::this_thread::yield();
  }
  if (kind == 1) {
    Linger(random, 20'000);
  }
}

TEST_CASE("shm backend gets random sequences on random groups right") {
  const int members = GENERATE(2, 3, 4, 8);
  static const uint64_t seed = std::random_device()();
  std::cout << "shm_backend_random_test seed " << seed << std::endl;
  Random random(seed);
  ShmWorld world(members);
  const std::vector<Call> calls = RandomCalls(random, members, 120);
  std::vector<std::string> problems(static_cast<size_t>(members));
  const auto statuses = world.Run([&](int member, Backend& backend) {
    Random pace(seed + static_cast<uint64_t>(member));
    for (size_t i = 0; i < calls.size(); ++i) {
      const Call& call = calls[i];
      if (std::find(call.members.begin(), call.members.end(), member) == call.members.end()) {
        continue;
      }
      const Group group = GroupOf(call.members, member);
      const OpContext context{group, i * 3 + 1, In(kLong)};
      const bool reduces = call.kind == Kind::kAllreduce || call.kind == Kind::kScatter ||
                           call.kind == Kind::kToRoot;
      const std::string problem =
          reduces ? RunReduction(call, context, backend) : RunMove(call, context, backend);
      if (!problem.empty()) {
        return Status::Failed("call " + std::to_string(i) + " of kind " +
                              std::to_string(static_cast<int>(call.kind)) + ": " + problem);
      }
      Dawdle(pace);
    }
    return Status::Ok();
  });
  for (const Status& status : statuses) {
    CHECK(status.message() == "");
  }
}

}  // namespace
}  // namespace muster::worker
