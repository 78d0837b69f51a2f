#include "worker/process_runtime.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "common/log.h"
#include "common/worker_page.h"
#include "worker/engine_runtime.h"

namespace muster::worker {
namespace {

// Runtimes are never destroyed while the process lives: handles and other threads may still be in
// one that was shut down.
struct Kept {
  std::unique_ptr<EngineRuntime> runtime;
  std::unique_ptr<Kept> previous;
};

// Atomics, not a mutex: a forked child must find them usable, whatever other threads did.
struct Process {
  std::unique_ptr<Kept> kept;  // Changed in init() only.
  std::atomic<EngineRuntime*> runtime{nullptr};
  std::atomic<pid_t> owner{0};
  std::atomic<bool> running{false};
};

Process& TheProcess() {
  static auto* process = new Process;  // Outlives all statics: exit handlers use it.
  return *process;
}

thread_local Runtime* thread_runtime = nullptr;

EngineRuntime* Running() {
  const Process& process = TheProcess();
  return process.running && process.owner == ::getpid() ? process.runtime.load() : nullptr;
}

void Shut(int exit_code) {
  EngineRuntime* runtime = Running();
  if (runtime == nullptr) {
    return;
  }
  runtime->ShutdownWith(exit_code);
  TheProcess().running = false;
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

void InitProcessRuntime(const std::vector<std::vector<int>>& process_sets) {
  Process& process = TheProcess();
  if (Running() != nullptr) {
    return;
  }
  if (process.runtime != nullptr && process.owner != ::getpid()) {
    throw Error("init() in a forked child: the runtime belongs to the process that started it");
  }
  StartLog();
  Result<RuntimeOptions> options = OptionsFromEnvironment();
  if (!options.ok()) {
    throw Error(options.status().message());
  }
  for (const std::vector<int>& ranks : process_sets) {
    options.value().engine.process_sets.emplace_back(ranks.begin(), ranks.end());
    std::sort(options.value().engine.process_sets.back().begin(),
              options.value().engine.process_sets.back().end());
  }
  auto runtime = std::make_unique<EngineRuntime>(std::move(options).value());
  runtime->Init(process_sets);
  // on_exit instead of atexit, because only code 0 is success.
  [[maybe_unused]] static const int registered = ::on_exit(AtExit, nullptr);
  process.runtime = runtime.get();
  process.kept = std::make_unique<Kept>(Kept{std::move(runtime), std::move(process.kept)});
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
  if (runtime == nullptr && TheProcess().running) {
    throw Error("muster is not there in a forked child: it belongs to the process that started it");
  }
  if (runtime == nullptr) {
    throw Error("muster is not initialized in this process: call muster::init() first");
  }
  return *runtime;
}

void SetThreadRuntime(Runtime* runtime) {
  thread_runtime = runtime;
}

}  // namespace muster::worker
