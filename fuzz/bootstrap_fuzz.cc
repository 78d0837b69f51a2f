// What an agent reads on standard input before it trusts anybody.

#include <unistd.h>

#include "common/process.h"
#include "common/version.h"
#include "fuzz/fuzz_input.h"
#include "launcher/agent/bootstrap.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster;
  constexpr size_t kPipeBytes = 32 * 1024;  // What a pipe takes without a reader.
  constexpr std::chrono::seconds kPatience{10};
  size = std::min(size, kPipeBytes);
  Pipe pipe = MakePipe().value();
  MUSTER_CHECK_EQ(::write(pipe.write.get(), data, size), static_cast<ssize_t>(size));
  pipe.write.Reset();
  const Result<v1::AgentBootstrap> bootstrap = launcher::ReadBootstrap(pipe.read.get(), kPatience);
  if (bootstrap.ok()) {
    MUSTER_CHECK_EQ(bootstrap.value().protocol(), kProtocolVersion);
    MUSTER_CHECK(!bootstrap.value().host().empty() && bootstrap.value().driver_size() > 0,
                 "what an agent cannot do without");
  } else {
    MUSTER_CHECK(bootstrap.status().code() == StatusCode::kInvalid, bootstrap.status().message());
  }
  return 0;
}
