// What the source of a sync says of its State, and whether the State here can take it over.

#include <array>

#include "fuzz/fuzz_input.h"
#include "worker/elastic_manifest.h"

namespace muster::worker {
namespace {

class TwoTensors final : public elastic::Member {
 public:
  std::vector<Tensor> tensors() override {
    return {{.data = weights_.data(), .dtype = DType::kF32, .shape = {2, 3}},
            {.data = steps_.data(), .dtype = DType::kI64, .shape = {4}}};
  }

  std::string save() override { return ""; }
  void load(std::string_view /*bytes*/) override {}

 private:
  std::array<float, 6> weights_{};
  std::array<int64_t, 4> steps_{};
};

void Land(const Manifest& manifest) {
  TwoTensors model;
  std::vector<Registered> entries(2);
  entries[0].name = "model";
  entries[0].member = &model;
  entries[1].name = "rng";
  entries[1].per_rank = true;
  entries[1].member = &model;
  const Result<Landing> landing = FindLanding(manifest, entries);
  if (landing.ok()) {
    MUSTER_CHECK_EQ(landing.value().entries.size(), manifest.size());
    for (size_t i = 0; i < manifest.size(); ++i) {
      MUSTER_CHECK(manifest[i].name == "model", "what is here, and synced");
      MUSTER_CHECK_EQ(landing.value().tensors[i].size(), manifest[i].tensors.size());
    }
  }
}

}  // namespace
}  // namespace muster::worker

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::worker;
  const std::string_view bytes = muster::fuzz::View(data, size);
  const muster::Result<Manifest> manifest = DecodeManifest(bytes);
  if (manifest.ok()) {
    MUSTER_CHECK(EncodeManifest(manifest.value()) == bytes, "one encoding for each manifest");
    Land(manifest.value());
  }
  return 0;
}
