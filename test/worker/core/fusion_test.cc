#include "worker/core/fusion.h"

#include <catch2/catch.hpp>

#include "common/random.h"
#include "test/worker/core/log_fixture.h"
#include "worker/core/dtype.h"

namespace muster::worker {
namespace {

constexpr size_t kRoom = 1 << 16;  // More than the entries of these tests take.

DataOperation Ready(const std::string& name, const Signature& signature) {
  const auto count = ElementCount(signature.shape, signature.dtype);
  return {{{0, name, signature.set}, {}, {}},
          ClassOf(signature),
          static_cast<size_t>(*count) * ElementSize(signature.dtype),
          name.size()};
}

/// Each of four bytes per element.
DataOperation Floats(const std::string& name, int64_t count, int32_t set = 0) {
  return Ready(name, Sum({count}, set));
}

}  // namespace

TEST_CASE("log tail fuses allreduces that are alike") {
  LogTail tail(1000, kRoom);
  tail.Append(Floats("a", 3));
  tail.Append(Floats("b", 4));
  tail.Append(Floats("c", 5));
  CHECK(Story(tail.Take()) == "run(a b c)");
  CHECK(tail.Take().empty());
}

TEST_CASE("log tail fuses nothing that differs in anything that matters") {
  const std::vector<Signature> different = [] {
    std::vector<Signature> all(8, Sum({4}));
    all[1].dtype = DType::kI32;
    all[2].op = Op::kMax;
    all[3].prescale = 2;
    all[4].postscale = 0.5;
    all[5].set = 3;
    all[6].device_kind = 1;
    all[7].op = Op::kAverage;
    return all;
  }();
  for (size_t i = 0; i < different.size(); ++i) {
    for (size_t j = 0; j < different.size(); ++j) {
      LogTail tail(1000, kRoom);
      tail.Append(Ready("a", different[i]));
      tail.Append(Ready("b", different[j]));
      CHECK(tail.Take().size() == (i == j ? 1 : 2));
    }
  }
}

TEST_CASE("log tail fuses across shapes, and across what lies between") {
  LogTail tail(1000, kRoom);
  tail.Append(Floats("a", 3));
  tail.Append(Ready("x", Tensor(OpKind::kAllreduce, {5}, DType::kI64)));
  tail.Append(Ready("b", Sum({2, 2})));
  tail.Append(Ready("y", Tensor(OpKind::kAllreduce, {1}, DType::kI64)));
  tail.Append(Ready("z", Tensor(OpKind::kBroadcast, {9})));
  tail.Append(Ready("c", Sum({})));
  CHECK(Story(tail.Take()) == "run(a b c) run(x y) run(z)");
}

TEST_CASE("log tail keeps within the limit, and opens the next one in order") {
  LogTail tail(40, kRoom);  // Ten floats.
  tail.Append(Floats("a", 6));
  tail.Append(Floats("b", 4));
  tail.Append(Floats("c", 1));
  tail.Append(Floats("d", 9));
  tail.Append(Floats("e", 1));
  CHECK(Story(tail.Take()) == "run(a b) run(c d) run(e)");
}

TEST_CASE("log tail does what is larger than the limit alone, and goes on fusing") {
  LogTail tail(40, kRoom);
  tail.Append(Floats("a", 2));
  tail.Append(Floats("huge", 11));
  tail.Append(Floats("b", 2));
  tail.Append(Floats("just", 10));
  CHECK(Story(tail.Take()) == "run(a b) run(huge) run(just)");
}

TEST_CASE("log tail fuses nothing when told so") {
  LogTail tail(0, kRoom);
  tail.Append(Floats("a", 1));
  tail.Append(Floats("b", 1));
  tail.Append(Floats("empty", 0));
  tail.Append(Floats("void", 0));
  CHECK(Story(tail.Take()) == "run(a) run(b) run(empty) run(void)");
}

TEST_CASE("log tail fuses empty tensors with others") {
  LogTail tail(4, kRoom);
  tail.Append(Floats("a", 1));
  tail.Append(Floats("b", 0));
  tail.Append(Floats("c", 0));
  CHECK(Story(tail.Take()) == "run(a b c)");
}

TEST_CASE("log tail does other operations one by one") {
  for (const OpKind kind :
       {OpKind::kAllgather, OpKind::kBroadcast, OpKind::kAlltoall, OpKind::kReducescatter}) {
    LogTail tail(1000, kRoom);
    tail.Append(Ready("a", Tensor(kind, {2})));
    tail.Append(Ready("b", Tensor(kind, {2})));
    CHECK(Story(tail.Take()) == "run(a) run(b)");
  }
  Signature adasum = Sum({4});
  adasum.op = Op::kAdasum;
  LogTail tail(1000, kRoom);
  tail.Append(Ready("a", adasum));
  tail.Append(Ready("b", adasum));
  CHECK(Story(tail.Take()) == "run(a) run(b)");
}

TEST_CASE("log tail moves no operation past another kind of entry") {
  LogTail tail(1000, kRoom);
  tail.Append(Floats("a", 1));
  tail.Append(LogEntry(Agreed{{0, "v"}, true}));
  tail.Append(Floats("b", 1));
  tail.Append(Floats("c", 1));
  tail.Append(LogEntry(BarrierPassed{{0, "w"}}));
  tail.Append(LogEntry(MemberFinished{2}));
  tail.Append(Floats("d", 1));
  CHECK(Story(tail.Take()) == "run(a) agreed(v) run(b c) barrier(w) finished(2) run(d)");
}

TEST_CASE("log tail of other entries alone is given out as it is") {
  LogTail tail(1000, kRoom);
  tail.Append(LogEntry(Rejected{{0, "w"}, "no"}));
  tail.Append(LogEntry(SmallResult{{3, ""}, "abc"}));
  CHECK(Story(tail.Take()) == "no(w) small(#3)");
}

// ---------------------------------------------------------------- groups

TEST_CASE("log tail fuses a group within itself only") {
  LogTail tail(1000, kRoom);
  tail.Append(Floats("a", 1));
  tail.AppendGroup({Floats("g0", 1), Floats("g1", 2)});
  tail.Append(Floats("b", 1));
  tail.AppendGroup({Floats("h0", 1)});
  CHECK(Story(tail.Take()) == "run(a b) run(g0 g1) run(h0)");
}

TEST_CASE("log tail does a group of several types next to each other") {
  LogTail tail(1000, kRoom);
  tail.Append(Floats("a", 1));
  tail.AppendGroup({Floats("g0", 1),
                    Ready("g1", Tensor(OpKind::kAllreduce, {1}, DType::kI64)),
                    Floats("g2", 1),
                    Ready("g3", Tensor(OpKind::kAllgather, {1}))});
  tail.Append(Ready("b", Tensor(OpKind::kAllreduce, {1}, DType::kI64)));
  CHECK(Story(tail.Take()) == "run(a) run(g0 g2) run(g1) run(g3) run(b)");
}

TEST_CASE("log tail fuses a group whatever the limit says") {
  for (const size_t limit : {size_t{0}, size_t{8}, size_t{1000}}) {
    LogTail tail(limit, kRoom);
    tail.AppendGroup({Floats("g0", 3), Floats("g1", 4)});
    CHECK(Story(tail.Take()) == "run(g0 g1)");
  }
}

// ---------------------------------------------------------------- the size of entries

TEST_CASE("log tail opens another Execute before one grows too long") {
  for (const bool grouped : {false, true}) {
    LogTail tail(1 << 30, 1000);
    std::vector<DataOperation> operations;
    for (int i = 0; i < 100; ++i) {
      operations.push_back(Floats(std::string(28, 'x'), 1));
    }
    if (grouped) {
      tail.AppendGroup(operations);
    } else {
      for (const DataOperation& operation : operations) {
        tail.Append(operation);
      }
    }
    size_t items = 0;
    const auto entries = tail.Take();
    for (const LogEntry& entry : entries) {
      CHECK(std::get<Execute>(entry).items.size() <= 1000 / 28);
      items += std::get<Execute>(entry).items.size();
    }
    CHECK(items == 100);
    CHECK(entries.size() >= 3);
    CHECK(entries.size() <= 8);
  }
}

TEST_CASE("log tail cuts in the same places whether names are spelled out or not") {
  const auto sizes = [](bool spelled) {
    LogTail tail(1 << 30, 500);
    for (int i = 0; i < 30; ++i) {
      DataOperation operation = Floats("a name of some length", 1);
      if (!spelled) {
        operation.item.key = {7, "", 0};
      }
      tail.Append(operation);
    }
    std::vector<size_t> counts;
    for (const LogEntry& entry : tail.Take()) {
      counts.push_back(std::get<Execute>(entry).items.size());
    }
    return counts;
  };
  CHECK(sizes(true) == sizes(false));
  CHECK(sizes(true).size() > 1);
}

// ---------------------------------------------------------------- what waits

TEST_CASE("log tail tells what waits in it") {
  LogTail tail(1000, kRoom);
  CHECK(tail.backlog().empty);
  CHECK_FALSE(tail.backlog().urgent);
  tail.Append(Floats("a", 3));
  tail.AppendGroup({Floats("g", 5)});
  CHECK_FALSE(tail.backlog().empty);
  CHECK_FALSE(tail.backlog().urgent);
  CHECK(tail.backlog().data_bytes == 32);
  CHECK(tail.backlog().operations == 2);
  tail.Append(LogEntry(BarrierPassed{{0, "b"}}));
  CHECK(tail.backlog().urgent);
  tail.Take();
  CHECK(tail.backlog().empty);
  CHECK_FALSE(tail.backlog().urgent);
  CHECK(tail.backlog().data_bytes == 0);
  CHECK(tail.backlog().operations == 0);
}

TEST_CASE("log tail counts what it has fused") {
  LogTail tail(1000, kRoom);
  for (const char* name : {"a", "b", "c"}) {
    tail.Append(Floats(name, 1));
  }
  tail.Append(Ready("x", Tensor(OpKind::kBroadcast, {1})));
  tail.Take();
  tail.Append(Floats("a", 1));
  tail.Take();
  CHECK(tail.counters().operations == 5);
  CHECK(tail.counters().executes == 3);
  CHECK(tail.counters().fused == 3);
}

// ---------------------------------------------------------------- at random

namespace {

/// Everything comes out once, what is fused is alike, nothing crosses a fence, and within a class
/// the order stays.
void RunTail(uint64_t seed) {
  Random random(seed);
  const size_t limit = random.Below(60);
  LogTail tail(limit, 200 + random.Below(400));
  std::map<std::string, std::pair<int, DataOperation>> sent;  // By name: behind so many fences.
  std::map<FusionClass, std::vector<std::string>> order;  // Without what goes alone for its size.
  int fences = 0;
  for (uint64_t i = 0, count = random.Below(60); i < count; ++i) {
    if (random.Below(8) == 0) {
      tail.Append(LogEntry(MemberFinished{static_cast<uint32_t>(fences++)}));
      continue;
    }
    Signature signature = Sum({static_cast<int64_t>(random.Below(8))});
    signature.dtype = random.Below(2) == 0 ? DType::kF32 : DType::kI8;
    signature.kind = random.Below(6) == 0 ? OpKind::kBroadcast : OpKind::kAllreduce;
    const DataOperation operation = Ready("t" + std::to_string(i), signature);
    sent[operation.item.key.name] = {fences, operation};
    if (operation.bytes <= limit) {
      order[operation.fusion_class].push_back(operation.item.key.name);
    }
    tail.Append(operation);
  }
  int passed = 0;
  std::map<FusionClass, std::vector<std::string>> came;
  for (const LogEntry& entry : tail.Take()) {
    if (const auto* fence = std::get_if<MemberFinished>(&entry)) {
      REQUIRE(fence->rank == static_cast<uint32_t>(passed++));
      continue;
    }
    const auto& items = std::get<Execute>(entry).items;
    size_t bytes = 0;
    for (const Item& item : items) {
      const auto node = sent.extract(item.key.name);
      REQUIRE_FALSE(node.empty());
      const auto& [behind, operation] = node.mapped();
      REQUIRE(behind == passed);
      bytes += operation.bytes;
      if (operation.bytes <= limit) {
        came[operation.fusion_class].push_back(item.key.name);
      }
      REQUIRE((items.size() == 1 || operation.fusion_class.kind == OpKind::kAllreduce));
    }
    REQUIRE((items.size() == 1 || bytes <= limit));
  }
  REQUIRE(sent.empty());
  REQUIRE(passed == fences);
  REQUIRE(came == order);
}

}  // namespace

TEST_CASE("log tail loses nothing and moves nothing too far, whatever waits in it") {
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    INFO("seed " << seed);
    RunTail(seed);
  }
}

}  // namespace muster::worker
