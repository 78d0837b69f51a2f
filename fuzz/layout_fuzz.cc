// The layout of a world, as it reaches an agent.

#include "fuzz/fuzz_input.h"
#include "launcher/agent/world_placement.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  fuzz::FuzzInput input(data, size);
  const auto host = input.Number<uint32_t>();
  const std::string_view bytes = input.Rest();
  v1::Layout layout;
  if (!layout.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return 0;
  }
  const Result<std::vector<v1::Placement>> places = launcher::PlacementsOfHost(layout, host);
  if (!places.ok()) {
    return 0;
  }
  for (const v1::Placement& place : places.value()) {
    MUSTER_CHECK(place.rank() < place.size() && place.local_rank() < place.local_size() &&
                     place.cross_rank() < place.cross_size() &&
                     place.local_size() <= place.size() && place.cross_size() <= place.size(),
                 "a place in the world");
  }
  return 0;
}
