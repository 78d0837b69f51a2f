#include "worker/elastic_run.h"

#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "common/log.h"
#include "worker/elastic_state.h"
#include "worker/fault.h"
#include "worker/trace_fields.h"

namespace muster::elastic {
namespace {

using worker::Awaited;
using worker::Runtime;

class Loop {
 public:
  Loop(Runtime& runtime, State& state) : runtime_(runtime), state_(state) {}

  RunEnd Run(const std::function<void(State&)>& train) {
    runtime_.EnterElastic();
    const bool newcomer = runtime_.place().generation == Generation{};
    if (newcomer && runtime_.AwaitWorld() == Awaited::kReleased) {
      return RunEnd::kReleased;
    }
    Trace("world");
    while (!Attempt(train)) {
      if (runtime_.AwaitWorld() == Awaited::kReleased) {
        return RunEnd::kReleased;
      }
      Trace("world");
      reset_ = true;
    }
    worker::FaultPoint("done", runtime_.place().rank);
    runtime_.ReportDone();
    return RunEnd::kFinished;
  }

 private:
  // One world. True: the function returned. False: the world is left, State is at a commit.
  bool Attempt(const std::function<void(State&)>& train) {
    try {
      if (reset_) {
        for (const std::function<void()>& callback : impl().reset_callbacks) {
          callback();
        }
      }
      state_.sync();
      train(state_);
      return true;
    } catch (const HostsUpdated& pending) {
      Trace("pending", pending.what());
      runtime_.Leave();
    } catch (const WorkersLost& lost) {
      spdlog::info("rank {} goes back to its last commit: {}", runtime_.place().rank, lost.what());
      Trace("lost", lost.what());
      state_.restore();
    }
    return false;
  }

  void Trace(const char* event, const char* reason = nullptr) {
    if (!runtime_.trace().enabled()) {
      return;
    }
    nlohmann::json fields = worker::TraceFields(runtime_.place(), impl().ledger().held());
    if (reason != nullptr) {
      fields["reason"] = reason;
    }
    runtime_.trace().Write(event, std::move(fields));
  }

  StateAccess::Impl& impl() { return StateAccess::Get(state_); }

  Runtime& runtime_;
  State& state_;
  bool reset_ = false;  // The user's program has seen another world before this one.
};

}  // namespace

RunEnd RunLoop(Runtime& runtime, State& state, const std::function<void(State&)>& train) {
  return Loop(runtime, state).Run(train);
}

void run(State& state, const std::function<void(State&)>& train) {
  Runtime& runtime = worker::GetRuntime();
  if (RunLoop(runtime, state, train) == RunEnd::kFinished) {
    return;
  }
  std::cout.flush();
  std::fflush(nullptr);
  runtime.Shutdown();
  std::exit(0);
}

}  // namespace muster::elastic
