#pragma once

// What the tests of the runtime share: workers in one process under a fake agent, and the
// operations that they submit.

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "test/support/fake_agent.h"
#include "worker/engine_runtime.h"
#include "worker/operation.h"

namespace muster::worker::test {

using muster::test::FakeAgent;
using Report = v1::WorkerReport;

inline constexpr std::chrono::seconds kPatience{10};

/// One worker: a runtime, and a thread that stands for the user's.
class Worker {
 public:
  Worker(FakeAgent& agent, uint64_t incarnation) : incarnation_(incarnation) {
    RuntimeOptions options = agent.OptionsFor(incarnation);
    options.engine.end_process = [this](int code, const std::string& why) {
      // The real one never comes back; here the test looks at what it would have said.
      bool expected = false;
      if (ended_.compare_exchange_strong(expected, true)) {
        end_.set_value({code, why});
      }
    };
    runtime_ = std::make_unique<EngineRuntime>(std::move(options));
  }

  EngineRuntime& runtime() { return *runtime_; }
  uint64_t incarnation() const { return incarnation_; }
  const Place& place() const { return runtime_->place(); }

  /// Runs on a thread of its own.
  template <class Body>
  std::future<void> Do(Body body) {
    return std::async(std::launch::async, [this, body] { body(*runtime_); });
  }
  std::pair<int, std::string> AwaitEnd() {
    auto future = end_.get_future();
    REQUIRE(future.wait_for(kPatience) == std::future_status::ready);
    return future.get();
  }

 private:
  const uint64_t incarnation_;
  std::atomic<bool> ended_{false};
  std::promise<std::pair<int, std::string>> end_;
  std::unique_ptr<EngineRuntime> runtime_;
};

using Workers = std::vector<std::unique_ptr<Worker>>;

inline std::vector<uint64_t> Incarnations(const Workers& workers) {
  std::vector<uint64_t> all;
  for (const auto& worker : workers) {
    all.push_back(worker->incarnation());
  }
  return all;
}

inline void Finish(std::vector<std::future<void>>& futures) {
  for (auto& future : futures) {
    REQUIRE(future.wait_for(kPatience) == std::future_status::ready);
    future.get();
  }
}

/// Runs `body` on all workers at once and waits for it.
template <class Body>
void All(Workers& workers, Body body) {
  std::vector<std::future<void>> futures;
  for (auto& worker : workers) {
    futures.push_back(worker->Do(body));
  }
  Finish(futures);
}

/// `size` workers in generation 1.
inline Workers StartWorld(FakeAgent& agent, size_t size) {
  Workers workers;
  std::vector<std::future<void>> inits;
  for (size_t i = 0; i < size; ++i) {
    workers.push_back(std::make_unique<Worker>(agent, i + 1));
    inits.push_back(workers.back()->Do([](EngineRuntime& runtime) { runtime.Init({}); }));
  }
  for (const auto& worker : workers) {
    agent.Await(worker->incarnation(), Report::kJoin);
  }
  agent.Form(1, Incarnations(workers));
  Finish(inits);
  return workers;
}

inline Submission Sum(float& value, const std::string& name = "sum") {
  Submission submission;
  submission.kind = OpKind::kAllreduce;
  submission.name = name;
  submission.in = {&value, DType::kF32, {1}};
  submission.out = submission.in;
  submission.op = Op::kSum;
  return submission;
}

inline Submission Vote(bool vote, const std::string& name = "vote") {
  Submission submission;
  submission.kind = OpKind::kAgreement;
  submission.name = name;
  submission.vote = vote;
  return submission;
}

inline float SumOfOnes(EngineRuntime& runtime) {
  float value = 1;
  runtime.Submit(Sum(value)).wait();
  return value;
}

/// Leaves in order: rank 0 last, as it waits for the others or for Release.
inline void ShutdownAll(Workers& workers) {
  All(workers, [](EngineRuntime& runtime) { runtime.Shutdown(); });
}

template <class Exception>
std::string MessageOf(Handle& handle) {
  try {
    handle.wait();
  } catch (const Exception& error) {
    return error.what();
  }
  FAIL("the operation succeeded");
  return "";
}

}  // namespace muster::worker::test
