// What a discovery script prints.

#include "discovery/host_list.h"
#include "fuzz/fuzz_input.h"

namespace muster::discovery {
namespace {

void CheckPrintable(const std::string& text) {
  MUSTER_CHECK(Printable(text, text.size() + 1) == text, "an error that a terminal can show");
  MUSTER_CHECK(text.size() < 1000, "an error of one short line");
}

// What was understood is written again and must mean the same.
void CheckReadsBack(const HostList& list) {
  std::string text;
  for (const ListedHost& host : list.hosts) {
    const bool v6 = host.host.value.find(':') != std::string::npos;
    text += (v6 ? "[" + host.host.value + "]" : host.host.value) + ":" +
            std::to_string(host.slots) + "\n";
    MUSTER_CHECK(!host.host.value.empty() && host.host.value.front() != '-', "no option to ssh");
    MUSTER_CHECK(host.slots <= kSlotsMax, "slots in bounds");
  }
  const Result<HostList> again = ParseHostLines(text, std::nullopt);
  MUSTER_CHECK(again.ok(), again.status().message());
  MUSTER_CHECK(again.value().hosts == list.hosts && again.value().warnings.empty(),
               "the same list");
}

}  // namespace
}  // namespace muster::discovery

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::discovery;
  for (const DefaultSlots slots : {DefaultSlots(), DefaultSlots(4)}) {
    const muster::Result<HostList> list = ParseHostLines(muster::fuzz::View(data, size), slots);
    if (list.ok()) {
      CheckReadsBack(list.value());
      for (const std::string& warning : list.value().warnings) {
        CheckPrintable(warning);
      }
    } else {
      CheckPrintable(list.status().message());
    }
  }
  return 0;
}
