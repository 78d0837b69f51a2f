// The argument of -H.

#include <algorithm>
#include <string>

#include "discovery/host_list.h"
#include "fuzz/fuzz_input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::discovery;
  const std::string text(muster::fuzz::View(data, size));
  const muster::Result<HostList> list = ParseHostArgument(text, std::nullopt);
  const std::string& error = list.status().message();
  MUSTER_CHECK(Printable(error, error.size() + 1) == error, "an error that a terminal can show");
  if (!list.ok()) {
    return 0;
  }
  MUSTER_CHECK(!list.value().hosts.empty(), "an empty list is an error");
  // The same entries on lines of their own: a line end or a comment inside an entry was refused.
  std::string lines = text;
  std::replace(lines.begin(), lines.end(), ',', '\n');
  const muster::Result<HostList> again = ParseHostLines(lines, std::nullopt);
  MUSTER_CHECK(again.ok() && again.value().hosts == list.value().hosts, "the same list");
  return 0;
}
