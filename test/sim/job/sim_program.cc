// What a simulated worker runs: a program as users write it, in a fiber.

#include <cstring>
#include <utility>

#include "test/sim/job/sim_generation.h"
#include "test/sim/job/sim_worker.h"
#include "test/sim/job/site.h"
#include "worker/elastic_run.h"

namespace muster::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using worker::Submission;

// The weights after so many steps: the same whoever took part in them.
int64_t WeightAfter(int64_t step, size_t index) {
  Random random(static_cast<uint64_t>(step) * 4 + index);
  return static_cast<int64_t>(random.Next());
}

}  // namespace

void SimWorker::Changed() {
  if (!std::exchange(woken_, true)) {
    universe_.In(process_,
                 universe_.Between(std::chrono::microseconds(2), std::chrono::microseconds(200)),
                 [this] {
                   woken_ = false;
                   RunFiber();
                 });
  }
}

void SimWorker::RunFiber() {
  if (fiber_->done()) {
    return;
  }
  worker::SetThreadRuntime(this);
  fiber_->Resume();
  worker::SetThreadRuntime(nullptr);
  if (fiber_->done() && process_->alive) {
    Die(*exit_, true, "");
  }
}

void SimWorker::Wait(const std::function<bool()>& until) {
  for (;;) {
    if (dying_) {
      throw ProcessEnds{};
    }
    if (exit_soon_) {
      Exit(*std::exchange(exit_soon_, std::nullopt));
    }
    if (until()) {
      return;
    }
    fiber_->Yield();
  }
}

void SimWorker::Sleep(Duration delay) {
  const Instant end = universe_.now() + delay;
  universe_.In(process_, delay, [this] { Changed(); });
  Wait([&] { return universe_.now() >= end; });
}

void SimWorker::Exit(int code) {
  failed_ |= code != 0;
  exit_ = ExitStatus{code, 0};
  throw ProcessEnds{};
}

void SimWorker::Main() noexcept {
  try {
    const ProgramPlan& plan = site_.program;
    Sleep(universe_.Chance(plan.slow_start)
              ? universe_.Between(seconds(3), seconds(15))
              : universe_.Between(milliseconds(5), milliseconds(400)));
    if (universe_.Chance(plan.crash_at_start)) {
      Exit(1);
    }
    Init({});
    elastic::State state;
    state.value("step", step_);
    state.tensor("weights", {.data = weights_.data(), .dtype = DType::kI64, .shape = {4}});
    for (size_t i = 0; i < weights_.size(); ++i) {
      weights_[i] = WeightAfter(0, i);
    }
    const elastic::RunEnd end =
        elastic::RunLoop(*this, state, [this](elastic::State& of) { Train(of); });
    if (end == elastic::RunEnd::kFinished) {
      Sleep(universe_.Between(Duration::zero(), milliseconds(1500)));
      if (universe_.Chance(plan.crash_at_end)) {
        Exit(3);
      }
    }
    Shutdown();
    Exit(0);
  } catch (const ProcessEnds&) {
    return;
  } catch (const std::exception& error) {
    universe_.Wrong("worker " + std::to_string(id_.value) + ": the program meets: " + error.what());
    exit_ = ExitStatus{1, 0};
  }
}

void SimWorker::Train(elastic::State& state) {
  const ProgramPlan& plan = site_.program;
  CheckProgram("when training begins");
  while (step_ < static_cast<int64_t>(plan.steps)) {
    Sleep(universe_.Between(plan.step_min, plan.step_max));
    double sum = 1;
    Submission submission;
    submission.kind = worker::OpKind::kAllreduce;
    submission.name = "gradient";
    submission.in = {.data = &sum, .dtype = DType::kF64, .shape = {1}};
    submission.out = submission.in;
    Handle handle = Submit(std::move(submission));
    handle.wait();
    if (sum != place_.size) {
      universe_.Wrong("a sum of ones over " + std::to_string(place_.size) + " ranks is " +
                      std::to_string(sum));
    }
    ++step_;
    for (size_t i = 0; i < weights_.size(); ++i) {
      weights_[i] = WeightAfter(step_, i);
    }
    state.commit();
    if (plan.checks_between && step_ % 3 == 0) {  // On all ranks alike.
      state.check_host_updates();
    }
  }
}

// Counter and weights belong to the same step.
void SimWorker::CheckProgram(const std::string& when) {
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i] != WeightAfter(step_, i)) {
      universe_.Wrong("worker " + std::to_string(id_.value) + " mixes two commits " + when);
    }
  }
}

}  // namespace muster::sim
