// One frame of a control link. What was understood is written again and must read the same.

#include "fuzz/fuzz_input.h"
#include "worker/control_messages.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::worker;
  const muster::Result<ControlMessage> message = Decode(muster::fuzz::View(data, size));
  if (!message.ok()) {
    return 0;
  }
  const std::string bytes = Encode(message.value());
  const muster::Result<ControlMessage> again = Decode(bytes);
  MUSTER_CHECK(again.ok(), again.status().message());
  // Compared as bytes: a number that is not one equals nothing, itself included.
  MUSTER_CHECK(Encode(again.value()) == bytes, "the same message");
  return 0;
}
