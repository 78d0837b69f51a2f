#include "worker/collective/shm_backend.h"

#include <catch2/catch.hpp>

#include "test/worker/collective/shm_world.h"
#include "worker/collective/slot_exchange.h"

namespace muster::worker {
namespace {

using Sizes = std::vector<size_t>;
constexpr size_t kSlot = SlotExchange::kSlotBytes;

size_t Sum(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), size_t{0});
}

/// One size for each member: drawn up to `bound`, some 0.
Sizes RandomSizes(Random& random, int members, size_t bound) {
  Sizes sizes;
  for (int i = 0; i < members; ++i) {
    sizes.push_back(random.Below(4) == 0 ? 0 : random.Below(bound));
  }
  return sizes;
}

TEST_CASE("shm backend gathers parts of any size on all") {
  const int members = GENERATE(1, 2, 3, 4, 8);
  const size_t bound = GENERATE(1, 100, 3 * kSlot);
  const bool in_place = GENERATE(false, true);
  ShmWorld world(members);
  Random random(21);
  for (int round = 0; round < 4; ++round) {
    const Sizes sizes = RandomSizes(random, members, bound);
    std::vector<Bytes> parts;
    Bytes expected;
    for (const size_t size : sizes) {
      parts.push_back(RandomBytes(random, size));
      expected.insert(expected.end(), parts.back().begin(), parts.back().end());
    }
    std::vector<Bytes> results(sizes.size(), Bytes(expected.size(), 'x'));
    CHECK(world.RunAll([&](const OpContext& context, Backend& backend) {
      const auto self = static_cast<size_t>(context.group.self);
      char* out = results[self].data();
      const char* in = parts[self].data();
      if (in_place) {
        char* own = out + Sum(Sizes(sizes.begin(), sizes.begin() + context.group.self));
        std::copy(parts[self].begin(), parts[self].end(), own);
        in = own;
      }
      return backend.Allgatherv(context, in, out, sizes);
    }) == "");
    for (const Bytes& result : results) {
      CHECK((result == expected));
    }
  }
}

TEST_CASE("shm backend broadcasts any number of bytes from any root") {
  const int members = GENERATE(1, 2, 3, 8);
  ShmWorld world(members);
  Random random(22);
  for (const size_t bytes : {size_t{0}, size_t{1}, kSlot, kSlot + 1, 11 * kSlot + 3}) {
    for (const int root : {0, members - 1}) {
      const Bytes data = RandomBytes(random, bytes);
      std::vector<Bytes> results(static_cast<size_t>(members), Bytes(bytes, 'x'));
      results[static_cast<size_t>(root)] = data;
      CHECK(world.RunAll([&](const OpContext& context, Backend& backend) {
        const auto self = static_cast<size_t>(context.group.self);
        return backend.Broadcast(context, results[self].data(), bytes, root);
      }) == "");
      for (const Bytes& result : results) {
        CHECK((result == data));
      }
    }
  }
}

TEST_CASE("shm backend sends to each member what is its own") {
  const int members = GENERATE(1, 2, 3, 8);
  const size_t bound = GENERATE(1, 50, 2 * kSlot);
  ShmWorld world(members);
  Random random(23);
  const auto count = static_cast<size_t>(members);
  for (int round = 0; round < 4; ++round) {
    std::vector<Sizes> sends;  // By sender, then by receiver.
    std::vector<Bytes> inputs;
    for (int i = 0; i < members; ++i) {
      // Some send nothing, or only to themselves.
      sends.push_back(round == 2 && i > 0 ? Sizes(count, 0) : RandomSizes(random, members, bound));
      inputs.push_back(RandomBytes(random, Sum(sends.back())));
    }
    std::vector<Sizes> receives(count);
    std::vector<Bytes> expected(count);
    for (size_t to = 0; to < count; ++to) {
      for (size_t from = 0; from < count; ++from) {
        receives[to].push_back(sends[from][to]);
        const auto begin =
            inputs[from].begin() + static_cast<std::ptrdiff_t>(std::accumulate(
                                       sends[from].begin(), sends[from].begin() + to, size_t{0}));
        expected[to].insert(
            expected[to].end(), begin, begin + static_cast<std::ptrdiff_t>(sends[from][to]));
      }
    }
    std::vector<Bytes> results;
    for (const Bytes& one : expected) {
      results.emplace_back(one.size(), 'x');
    }
    CHECK(world.RunAll([&](const OpContext& context, Backend& backend) {
      const auto self = static_cast<size_t>(context.group.self);
      return backend.Alltoallv(
          context, inputs[self].data(), sends[self], results[self].data(), receives[self]);
    }) == "");
    CHECK((results == expected));
  }
}

TEST_CASE("shm backend scatters a reduction in uneven parts and leaves the input alone") {
  const int members = GENERATE(1, 2, 3, 8);
  const DType dtype = GENERATE(DType::kF32, DType::kF16, DType::kU8);
  ShmWorld world(members);
  Random random(24);
  for (const size_t bound : {size_t{2}, size_t{1000}, size_t{200'000}}) {
    const Sizes counts = RandomSizes(random, members, bound);
    const Reduction what{dtype, Op::kAverage, 0.5, 1, members};
    const size_t element = kernels::SizeOf(static_cast<kernels::Element>(dtype));
    std::vector<Bytes> inputs;
    for (int i = 0; i < members; ++i) {
      inputs.push_back(RandomBytes(random, Sum(counts) * element));
    }
    if (members > 2) {
      inputs[1].clear();  // It has joined.
    }
    const std::vector<Bytes> before = inputs;
    const Bytes expected = Reduced(what, inputs, Sum(counts));
    std::vector<Bytes> results;
    for (const size_t part : counts) {
      results.emplace_back(part * element, 'x');
    }
    CHECK(world.RunAll([&](const OpContext& context, Backend& backend) {
      const auto self = static_cast<size_t>(context.group.self);
      const char* in = inputs[self].empty() ? nullptr : inputs[self].data();
      return backend.ReduceScatter(context, in, results[self].data(), counts, what);
    }) == "");
    Bytes all;
    for (const Bytes& result : results) {
      all.insert(all.end(), result.begin(), result.end());
    }
    CHECK((all == expected));
    CHECK((inputs == before));
  }
}

TEST_CASE("shm backend reduces to a root without rounding in between") {
  const int members = GENERATE(1, 2, 3, 8);
  const DType dtype = GENERATE(DType::kF16, DType::kF32, DType::kI16, DType::kI64, DType::kBool);
  const Op op = GENERATE(Op::kSum, Op::kAverage, Op::kMax);
  if (dtype == DType::kBool && op == Op::kAverage) {
    return;  // Refused before it gets here.
  }
  ShmWorld world(members);
  Random random(25);
  const Reduction what{dtype, op, dtype == DType::kBool ? 1 : 0.5, 3, 7};
  const kernels::ReducePlan plan = PlanOf(what);
  const size_t element = kernels::SizeOf(plan.type);
  const size_t width = kernels::AccumulatorSize(plan);
  for (const size_t count : {size_t{0}, size_t{1}, size_t{3000}, size_t{300'001}}) {
    std::vector<Bytes> inputs;
    for (int i = 0; i < members; ++i) {
      inputs.push_back(RandomBytes(random, count * element));
      // Finite floats: which NaN a sum of two is, is left open between one pass and two.
      for (char& byte : inputs.back()) {
        byte = static_cast<char>(byte & 0xBF);
      }
    }
    if (members > 2) {
      inputs[1].assign(inputs[1].size(), 0);
    }
    const int root = members - 1;
    Bytes expected(count * width);
    Bytes wide(count * width);
    for (size_t i = 0; i < inputs.size(); ++i) {
      kernels::Widen(plan, inputs[i].data(), i == 0 ? expected.data() : wide.data(), count);
      if (i > 0) {
        kernels::Combine(plan, expected.data(), expected.data(), wide.data(), count);
      }
    }
    Bytes result(count * width, 'x');
    CHECK(world.RunAll([&](const OpContext& context, Backend& backend) {
      const auto self = static_cast<size_t>(context.group.self);
      const char* in = members > 2 && self == 1 ? nullptr : inputs[self].data();
      const size_t half = count / 2;
      const Piece pieces[] = {{in, nullptr, half},
                              {in == nullptr ? in : in + half * element, nullptr, count - half}};
      return backend.ReduceToRoot(
          context, pieces, what, context.group.self == root ? result.data() : nullptr, root);
    }) == "");
    INFO("dtype " << static_cast<int>(dtype) << " op " << static_cast<int>(op) << " of " << count);
    CHECK((result == expected));
  }
}

TEST_CASE("shm backend lets nobody through a barrier before all are there") {
  const int members = GENERATE(1, 2, 5, 8);
  ShmWorld world(members);
  std::atomic<int> arrived{0};
  std::atomic<int> early{0};
  constexpr int kRounds = 300;
  const auto statuses = world.Run([&](int member, Backend& backend) {
    const Group group = GroupOf(world.all(), member);
    for (int round = 0; round < kRounds; ++round) {
      arrived.fetch_add(1);
      if (Status status = backend.Barrier({group, static_cast<uint64_t>(round), In(kLong)});
          !status.ok()) {
        return status;
      }
      early.fetch_add(arrived.load() < (round + 1) * members ? 1 : 0);
    }
    return Status::Ok();
  });
  CHECK(std::all_of(statuses.begin(), statuses.end(), [](const Status& s) { return s.ok(); }));
  CHECK(early == 0);
  CHECK(arrived == kRounds * members);
}

TEST_CASE("shm backend lets a fast root run ahead as far as there are slots") {
  // With one reader who has not come, it has to wait, and says for whom.
  const int readers = GENERATE(0, 1, 2);
  ShmWorld world(3);
  const Group root = GroupOf({0, 1, 2}, 0);
  Random random(26);
  std::vector<Bytes> sent;
  for (uint64_t i = 0; i < SlotExchange::kSlotCount; ++i) {
    sent.push_back(RandomBytes(random, 1000));
    REQUIRE(world.backend(0).Broadcast({root, i, In(kLong)}, sent.back().data(), 1000, 0).ok());
  }
  for (int member = 1; member <= readers; ++member) {
    const Group group = GroupOf({0, 1, 2}, member);
    for (uint64_t i = 0; i < SlotExchange::kSlotCount; ++i) {
      Bytes result(1000);
      CHECK(world.backend(member).Broadcast({group, i, In(kLong)}, result.data(), 1000, 0).ok());
      CHECK((result == sent[i]));
    }
  }
  Bytes more(1000);
  const Status status = world.backend(0).Broadcast(
      {root, SlotExchange::kSlotCount, In(kBrief)}, more.data(), 1000, 0);
  CHECK(status.code() == (readers < 2 ? StatusCode::kTimeout : StatusCode::kOk));
  const std::vector<int> suspects[] = {{7, 9}, {9}, {}};
  CHECK(world.backend(0).suspects() == suspects[readers]);
}

}  // namespace
}  // namespace muster::worker
