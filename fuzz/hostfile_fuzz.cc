// A hostfile.

#include "discovery/host_list.h"
#include "fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::discovery;
  const std::string_view text = muster::fuzz::View(data, size);
  const muster::Result<HostList> strict = ParseHostfile(text, "hosts", std::nullopt);
  const muster::Result<HostList> lenient = ParseHostfile(text, "hosts", 1);
  for (const auto* list : {&strict, &lenient}) {
    const std::string& error = list->status().message();
    MUSTER_CHECK(list->ok() || error.starts_with("hosts:") || size > kHostListBytesMax, error);
    MUSTER_CHECK(Printable(error, error.size() + 1) == error, "an error that a terminal can show");
  }
  MUSTER_CHECK(!strict.ok() || (lenient.ok() && strict.value().hosts == lenient.value().hosts),
               "a default changes nothing where every count is given");
  return 0;
}
