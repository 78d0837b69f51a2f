// GetRuntime() for tests that link State without the engine.

#include "worker/runtime.h"

namespace muster::worker {
namespace {
thread_local Runtime* thread_runtime = nullptr;
}  // namespace

Runtime& GetRuntime() {
  if (thread_runtime == nullptr) {
    throw Error("this thread is no worker of a fake job");
  }
  return *thread_runtime;
}

void SetThreadRuntime(Runtime* runtime) {
  thread_runtime = runtime;
}

}  // namespace muster::worker
