#include "worker/elastic_snapshot.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>

namespace muster::worker {
namespace {

class TestMember final : public elastic::Member {
 public:
  std::vector<float> data{1, 2, 3};
  std::string value = "first";
  DType dtype = DType::kF32;
  bool has_changed = true;
  bool save_fails = false;
  std::vector<std::string> calls;

  std::vector<Tensor> tensors() override {
    return {{.data = data.data(), .dtype = dtype, .shape = {static_cast<int64_t>(data.size())}}};
  }
  bool changed(size_t) override { return has_changed; }
  std::string save() override {
    if (save_fails) {
      throw std::runtime_error("cannot save");
    }
    return value;
  }
  void load(std::string_view bytes) override {
    value = bytes;
    calls.push_back("load with data[0] = " + std::to_string(static_cast<int>(data[0])));
  }
};

struct Fixture {
  TestMember a;
  TestMember b;
  std::vector<Registered> entries;
  Snapshot snapshot;

  Fixture() {
    entries.push_back({.name = "a", .member = &a});
    entries.push_back({.name = "b", .per_rank = true, .member = &b});
  }
  void Take(Snapshot::Copy copy = Snapshot::Copy::kAll) { snapshot.Take(entries, copy); }
  void WriteBack(Snapshot::Part part = Snapshot::Part::kAll) { snapshot.WriteBack(entries, part); }
};

TEST_CASE("a snapshot brings back tensors and values") {
  Fixture f;
  f.Take();
  f.a.data = {7, 8, 9};  // Another address, too.
  f.a.value = "second";
  f.WriteBack();
  CHECK(f.a.data == std::vector<float>{1, 2, 3});
  CHECK(f.a.value == "first");
}

TEST_CASE("a snapshot loads a member's value after its tensors") {
  Fixture f;
  f.Take();
  f.a.data[0] = 50;
  f.WriteBack();
  CHECK(f.a.calls == std::vector<std::string>{"load with data[0] = 1"});
}

TEST_CASE("a snapshot can bring back only what is per rank") {
  Fixture f;
  f.Take();
  f.a.data[0] = 50;
  f.b.data[0] = 60;
  f.WriteBack(Snapshot::Part::kPerRank);
  CHECK(f.a.data[0] == 50);
  CHECK(f.b.data[0] == 1);
}

TEST_CASE("a snapshot uses its buffers again") {
  Fixture f;
  f.Take();
  const void* before = f.snapshot.members()[0].tensors[0].data.bytes.get();
  f.a.data[1] = 20;
  f.Take();
  CHECK(f.snapshot.members()[0].tensors[0].data.bytes.get() == before);
  f.a.data[1] = 0;
  f.WriteBack();
  CHECK(f.a.data[1] == 20);
}

TEST_CASE("a snapshot believes a member that says it has not changed") {
  Fixture f;
  f.a.has_changed = false;
  f.Take(Snapshot::Copy::kChanged);  // The first copy is made all the same.
  f.a.data[0] = 50;
  f.Take(Snapshot::Copy::kChanged);
  f.WriteBack();
  CHECK(f.a.data[0] == 1);
}

TEST_CASE("a snapshot of all does not ask what has changed") {
  Fixture f;
  f.a.has_changed = false;
  f.Take();
  f.a.data[0] = 50;
  f.Take(Snapshot::Copy::kAll);
  f.a.data[0] = 0;
  f.WriteBack();
  CHECK(f.a.data[0] == 50);
}

TEST_CASE("a snapshot stays whole when a member cannot be saved") {
  Fixture f;
  f.Take();
  f.a.data[0] = 50;
  f.a.value = "second";
  f.b.save_fails = true;
  CHECK_THROWS_WITH(f.Take(), "cannot save");
  f.WriteBack();
  CHECK(f.a.data[0] == 1);
  CHECK(f.a.value == "first");
}

TEST_CASE("a snapshot refuses a tensor whose shape or type has changed") {
  Fixture f;
  f.Take();
  f.a.data.push_back(4);
  CHECK_THROWS_WITH(f.Take(), "State: tensor 0 of \"a\" is f32[4], its last commit had f32[3]");
  CHECK_THROWS_WITH(f.WriteBack(),
                    "State: tensor 0 of \"a\" is f32[4], its last commit had f32[3]");
  f.a.data.pop_back();
  f.a.dtype = DType::kI32;
  CHECK_THROWS_WITH(f.Take(), "State: tensor 0 of \"a\" is i32[3], its last commit had f32[3]");
}

TEST_CASE("a snapshot grows by the members that were added") {
  Fixture f;
  f.Take();
  TestMember c;
  f.entries.push_back({.name = "c", .member = &c});
  f.WriteBack();  // What is not in the snapshot is left alone.
  f.Take();
  c.data[2] = 0;
  f.WriteBack();
  CHECK(c.data[2] == 3);
}

TEST_CASE("a snapshot holds tensors without elements and scalars") {
  Fixture f;
  f.a.data.clear();
  int64_t scalar = 5;
  struct Scalar final : elastic::Member {
    int64_t* at;
    std::vector<Tensor> tensors() override { return {{.data = at, .dtype = DType::kI64}}; }
    std::string save() override { return {}; }
    void load(std::string_view) override {}
  } member;
  member.at = &scalar;
  f.entries.push_back({.name = "scalar", .member = &member});
  f.Take();
  scalar = 6;
  f.WriteBack();
  CHECK(scalar == 5);
}

TEST_CASE("a tensor that cannot be committed is refused by name") {
  struct Odd final : elastic::Member {
    Tensor tensor;
    std::vector<Tensor> tensors() override { return {tensor}; }
    std::string save() override { return {}; }
    void load(std::string_view) override {}
  } member;
  float x = 0;
  const Registered entry{.name = "odd", .member = &member};
  member.tensor = {.data = &x, .device = {.kind = 1}};
  CHECK_THROWS_WITH(LiveTensors(entry), Catch::Contains("\"odd\"") && Catch::Contains("CPU"));
  member.tensor = {.data = &x, .shape = {2, -1}};
  CHECK_THROWS_WITH(LiveTensors(entry), Catch::Contains("negative"));
  member.tensor = {.data = nullptr, .shape = {2}};
  CHECK_THROWS_WITH(LiveTensors(entry), Catch::Contains("no memory"));
  member.tensor = {.data = &x, .dtype = static_cast<DType>(99)};
  CHECK_THROWS_WITH(LiveTensors(entry), Catch::Contains("element type"));
}

TEST_CASE("a digest tells snapshots apart by every byte that is synced") {
  Fixture f;
  f.a.data.resize(37);
  std::iota(f.a.data.begin(), f.a.data.end(), 1.0F);
  f.Take();
  const uint64_t digest = f.snapshot.Digest(f.entries);
  f.Take();
  CHECK(f.snapshot.Digest(f.entries) == digest);
  f.b.data[0] = 99;  // Per rank.
  f.Take();
  CHECK(f.snapshot.Digest(f.entries) == digest);
  for (float& x : f.a.data) {
    const float before = x;
    x = -x;  // One bit, the highest of its word.
    f.Take();
    CHECK(f.snapshot.Digest(f.entries) != digest);
    x = before;
  }
  // Two highest bits in words of the same lane do not cancel.
  f.a.data[1] = -f.a.data[1];
  f.a.data[9] = -f.a.data[9];
  f.Take();
  CHECK(f.snapshot.Digest(f.entries) != digest);
  f.a.data[1] = -f.a.data[1];
  f.a.data[9] = -f.a.data[9];
  f.a.value = "firsu";
  f.Take();
  CHECK(f.snapshot.Digest(f.entries) != digest);
}

TEST_CASE("a snapshot calls back between two copies") {
  Fixture f;
  f.Take();
  f.a.data[0] = 50;
  f.b.data[0] = 60;
  int calls = 0;
  f.snapshot.Take(f.entries, Snapshot::Copy::kAll, [&] {
    ++calls;
    float first = 0;
    float second = 0;
    std::memcpy(&first, f.snapshot.members()[0].tensors[0].data.bytes.get(), sizeof first);
    std::memcpy(&second, f.snapshot.members()[1].tensors[0].data.bytes.get(), sizeof second);
    CHECK(first == 50);
    CHECK(second == 1);
  });
  CHECK(calls == 1);
}

}  // namespace
}  // namespace muster::worker
