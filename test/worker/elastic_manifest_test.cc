#include "worker/elastic_manifest.h"

#include <catch2/catch.hpp>

#include "common/random.h"

namespace muster::worker {
namespace {

class TestMember final : public elastic::Member {
 public:
  explicit TestMember(std::vector<Tensor> tensors) : tensors_(std::move(tensors)) {}
  std::vector<Tensor> tensors() override { return tensors_; }
  std::string save() override { return "saved"; }
  void load(std::string_view) override {}

 private:
  std::vector<Tensor> tensors_;
};

float memory[64];

Tensor Floats(Shape shape) {
  return {.data = memory, .dtype = DType::kF32, .shape = shape};
}

void Register(std::vector<Registered>& entries,
              const std::string& name,
              std::vector<Tensor> tensors,
              bool per_rank = false) {
  Registered entry{.name = name, .per_rank = per_rank};
  entry.owned = std::make_unique<TestMember>(std::move(tensors));
  entry.member = entry.owned.get();
  entries.push_back(std::move(entry));
}

const Manifest kManifest = {
    {.name = "model", .value = "", .tensors = {{DType::kF32, {3, 4}}, {DType::kI64, {}}}},
    {.name = "epoch", .value = std::string("\0\1two", 5)}};

TEST_CASE("a manifest comes back from its bytes") {
  const Result<Manifest> decoded = DecodeManifest(EncodeManifest(kManifest));
  REQUIRE(decoded.ok());
  CHECK(decoded.value() == kManifest);
  CHECK(DecodeManifest(EncodeManifest({})).value().empty());
}

TEST_CASE("a manifest that is cut short or too long is refused at every length") {
  const std::string bytes = EncodeManifest(kManifest);
  for (size_t size = 0; size < bytes.size(); ++size) {
    INFO("size " << size);
    CHECK_FALSE(DecodeManifest(bytes.substr(0, size)).ok());
  }
  CHECK_FALSE(DecodeManifest(bytes + "x").ok());
}

TEST_CASE("a manifest of random bytes is refused or read, never more") {
  Random random(7);
  const std::string good = EncodeManifest(kManifest);
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = good;
    for (uint64_t flips = 1 + random.Below(4); flips > 0; --flips) {
      bytes[random.Below(bytes.size())] = static_cast<char>(random.Next());
    }
    const Result<Manifest> decoded = DecodeManifest(bytes);
    if (decoded.ok()) {
      REQUIRE(EncodeManifest(decoded.value()) == bytes);
    }
  }
}

TEST_CASE("a landing finds members by name, in the source's order") {
  std::vector<Registered> entries;
  Register(entries, "epoch", {});
  Register(entries, "random", {Floats({9})}, true);
  Register(entries, "model", {Floats({3, 4}), {.data = memory, .dtype = DType::kI64}});
  const Result<Landing> landing = FindLanding(kManifest, entries);
  REQUIRE(landing.ok());
  CHECK(landing.value().entries == std::vector<size_t>{2, 0});
  CHECK(landing.value().tensors[0].size() == 2);
  CHECK(landing.value().tensors[1].empty());
}

std::string Problem(const std::vector<Registered>& entries) {
  const Result<Landing> landing = FindLanding(kManifest, entries);
  return landing.ok() ? "none" : landing.status().message();
}

TEST_CASE("a tensor of another shape is named with both shapes") {
  std::vector<Registered> entries;
  Register(entries, "epoch", {});
  Register(entries, "model", {Floats({4, 3}), {.data = memory, .dtype = DType::kI64}});
  CHECK(Problem(entries) == "tensor 0 of \"model\" is f32[4, 3] here and f32[3, 4] at the source");
}

TEST_CASE("a tensor of another type is named with both types") {
  std::vector<Registered> entries;
  Register(entries, "epoch", {});
  Register(entries, "model", {Floats({3, 4}), Floats({})});
  CHECK(Problem(entries) == "tensor 1 of \"model\" is f32[] here and i64[] at the source");
}

TEST_CASE("another number of tensors is named") {
  std::vector<Registered> entries;
  Register(entries, "epoch", {});
  Register(entries, "model", {Floats({3, 4})});
  CHECK(Problem(entries) == "\"model\" has 1 tensors here and 2 at the source");
}

TEST_CASE("a member that one side lacks is named") {
  std::vector<Registered> entries;
  Register(entries, "model", {Floats({3, 4}), {.data = memory, .dtype = DType::kI64}});
  CHECK(Problem(entries) == "\"epoch\" is synced by the source and missing here");
  Register(entries, "epoch", {}, true);
  CHECK(Problem(entries) == "\"epoch\" is synced by the source and per rank here");
  entries.pop_back();
  Register(entries, "epoch", {});
  Register(entries, "more", {});
  CHECK(Problem(entries) == "\"more\" is here and missing at the source");
}

TEST_CASE("a manifest leaves out what is per rank") {
  std::vector<Registered> entries;
  Register(entries, "random", {Floats({2})}, true);
  Register(entries, "model", {Floats({2, 2})});
  Snapshot snapshot;
  snapshot.Take(entries, Snapshot::Copy::kAll);
  const Manifest expected = {
      {.name = "model", .value = "saved", .tensors = {{DType::kF32, {2, 2}}}}};
  CHECK(MakeManifest(entries, snapshot) == expected);
}

}  // namespace
}  // namespace muster::worker
