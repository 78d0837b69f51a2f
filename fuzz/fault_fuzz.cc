// MUSTER_FAULT. What was understood is written again and must mean the same.

#include "fuzz/fuzz_input.h"
#include "worker/fault.h"

namespace muster::worker {
namespace {

std::string ActionText(const Fault& fault) {
  const std::string end = fault.replacements ? "+" : "";
  switch (fault.action) {
    case FaultAction::kKill:
      return "kill" + end;
    case FaultAction::kStop:
      return "stop" + end;
    case FaultAction::kThrow:
      return "throw" + end;
    case FaultAction::kExit:
      return "exit" + end;
    case FaultAction::kDelay:
      return "delay=" + std::to_string(fault.delay.count()) + end;
  }
  return "";
}

}  // namespace
}  // namespace muster::worker

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::worker;
  const muster::Result<std::vector<Fault>> faults = ParseFaults(muster::fuzz::View(data, size));
  if (!faults.ok()) {
    return 0;
  }
  std::string text;
  for (const Fault& fault : faults.value()) {
    MUSTER_CHECK(fault.nth > 0 && fault.delay.count() >= 0, "numbers that mean something");
    text += (text.empty() ? "" : ",") + fault.point + ":" +
            (fault.rank ? std::to_string(*fault.rank) : "*") + ":" + ActionText(fault) + ":" +
            std::to_string(fault.nth);
  }
  const muster::Result<std::vector<Fault>> again = ParseFaults(text);
  MUSTER_CHECK(again.ok() && again.value() == faults.value(), text);
  return 0;
}
