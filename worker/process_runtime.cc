#include "worker/process_runtime.h"

#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "common/log.h"
#include "common/mutex.h"
#include "common/worker_page.h"
#include "worker/engine_runtime.h"

namespace muster::worker {
namespace {

struct Process {
  Mutex mutex;
  // Never destroyed while the process lives: handles and other threads may still be in it.
  EngineRuntime* runtime MUSTER_GUARDED_BY(mutex) = nullptr;
  pid_t owner MUSTER_GUARDED_BY(mutex) = 0;
  bool running MUSTER_GUARDED_BY(mutex) = false;
};

Process& TheProcess() {
  static auto* process = new Process;  // Outlives all statics: exit handlers use it.
  return *process;
}

thread_local Runtime* thread_runtime = nullptr;

EngineRuntime* Running() {
  Process& process = TheProcess();
  const MutexLock lock(process.mutex);
  return process.running && process.owner == ::getpid() ? process.runtime : nullptr;
}

void Shut(int exit_code) {
  EngineRuntime* runtime = Running();
  if (runtime == nullptr) {
    return;
  }
  // Not under the mutex: rank 0 may wait here, while other threads ask for their rank.
  runtime->ShutdownWith(exit_code);
  Process& process = TheProcess();
  const MutexLock lock(process.mutex);
  process.running = false;
}

void AtExit(int exit_code, void*) {
  Shut(exit_code);
}

void StartLog() {
  const char* incarnation = std::getenv(kEnvIncarnation);
  const char* level = std::getenv("HOROVOD_LOG_LEVEL");
  const std::string who = incarnation == nullptr ? "worker" : std::string("worker #") + incarnation;
  const Status status = InitLog(who, level == nullptr ? "" : level);
  if (!status.ok()) {
    throw Error(status.message());
  }
}

}  // namespace

void InitProcessRuntime() {
  Process& process = TheProcess();
  {
    const MutexLock lock(process.mutex);
    if (process.running && process.owner == ::getpid()) {
      return;
    }
    if (process.runtime != nullptr && process.owner != ::getpid()) {
      throw Error("init() in a forked child: the runtime belongs to the process that started it");
    }
  }
  StartLog();
  Result<RuntimeOptions> options = OptionsFromEnvironment();
  if (!options.ok()) {
    throw Error(options.status().message());
  }
  auto runtime = std::make_unique<EngineRuntime>(std::move(options).value());
  runtime->Init();
  // on_exit instead of atexit, because only code 0 is success.
  [[maybe_unused]] static const int registered = ::on_exit(AtExit, nullptr);
  const MutexLock lock(process.mutex);
  process.runtime = runtime.release();
  process.owner = ::getpid();
  process.running = true;
}

void ShutdownProcessRuntime() {
  Shut(0);
}

bool ProcessRuntimeIsInitialized() {
  return thread_runtime != nullptr || Running() != nullptr;
}

Runtime& GetRuntime() {
  if (thread_runtime != nullptr) {
    return *thread_runtime;
  }
  EngineRuntime* runtime = Running();
  if (runtime == nullptr) {
    throw Error("muster is not initialized in this process: call muster::init() first");
  }
  return *runtime;
}

void SetThreadRuntime(Runtime* runtime) {
  thread_runtime = runtime;
}

}  // namespace muster::worker
