#include "worker/end_process.h"

#include <unistd.h>

#include "common/write_line.h"

namespace muster::worker {
namespace {

// For whoever empties the pipe, if it happens to be full.
constexpr std::chrono::milliseconds kPatience{100};

}  // namespace

void EndThisProcess(int code, const std::string& why) {
  WriteLine(STDERR_FILENO, "muster: " + why, kPatience);
  ::_exit(code);
}

}  // namespace muster::worker
