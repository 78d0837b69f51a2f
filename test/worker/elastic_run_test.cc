#include "worker/elastic_run.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/log.h"
#include "test/support/fake_runtime.h"
#include "worker/fault.h"

namespace muster::elastic {
namespace {

using testing::FakeJob;
using testing::FakeRuntime;
using worker::Awaited;
using worker::OpKind;

constexpr int64_t kSteps = 12;

const bool quiet = [] {
  spdlog::set_level(spdlog::level::warn);  // Losses are the rule in here.
  return true;
}();

/// Sums a one over all ranks, as a step of training does.
double SumOfOnes(FakeRuntime& runtime) {
  double one = 1;
  double sum = 0;
  worker::Submission submission;
  submission.kind = OpKind::kAllreduce;
  submission.name = "ones";
  submission.in = {.data = &one, .dtype = DType::kF64, .shape = {1}};
  submission.out = {.data = &sum, .dtype = DType::kF64, .shape = {1}};
  runtime.Submit(std::move(submission)).wait();
  return sum;
}

/// One worker's program and what it saw.
struct Program {
  int64_t step = 0;
  double total = 0;  // Grows by the step's number, so it tells whether each step counted once.
  std::vector<std::string> log;
  RunEnd end = RunEnd::kReleased;

  void Run(FakeRuntime& runtime, const std::function<void(State&)>& after_step = {}) {
    State state;
    state.value("step", step).tensor("total", {.data = &total, .dtype = DType::kF64});
    state.register_reset_callbacks(
        {[&] { log.push_back("reset a, size " + std::to_string(runtime.place().size)); },
         [&] { log.push_back("reset b"); }});
    end = RunLoop(runtime, state, [&](State& s) {
      log.push_back("train from " + std::to_string(step) + ", size " +
                    std::to_string(runtime.place().size));
      while (step < kSteps) {
        if (SumOfOnes(runtime) != runtime.place().size) {
          throw std::logic_error("wrong sum");
        }
        ++step;
        total += static_cast<double>(step);
        if (after_step) {
          after_step(s);
        }
        s.commit();
      }
    });
  }
};

constexpr double kTotal = kSteps * (kSteps + 1) / 2.0;

void CheckFinished(const Program& program) {
  CHECK(program.end == RunEnd::kFinished);
  CHECK(program.step == kSteps);
  CHECK(program.total == kTotal);
}

TEST_CASE("run calls the function once if nothing happens") {
  FakeJob job(3);
  std::array<Program, 3> programs;
  job.RunAll([&](FakeRuntime& runtime) { programs[runtime.id()].Run(runtime); });
  for (int id = 0; id < 3; ++id) {
    CheckFinished(programs[id]);
    CHECK(programs[id].log == std::vector<std::string>{"train from 0, size 3"});
    CHECK(job.worker(id).entered == 1);
    CHECK(job.worker(id).done == 1);
    CHECK(job.worker(id).synced.size() == 1);
  }
}

TEST_CASE("run goes back to the last commit when any worker is lost") {
  for (int lost = 0; lost < 3; ++lost) {
    FakeJob job(3);
    job.LoseAt(lost, "ones", 5);
    std::array<Program, 3> programs;
    job.RunAll([&](FakeRuntime& runtime) { programs[runtime.id()].Run(runtime); });
    for (int id = 0; id < 3; ++id) {
      if (id == lost) {
        continue;
      }
      CheckFinished(programs[id]);
      CHECK(programs[id].log ==
            std::vector<std::string>{
                "train from 0, size 3", "reset a, size 2", "reset b", "train from 4, size 2"});
    }
  }
}

TEST_CASE("run loses no committed step when workers die around a commit") {
  for (const char* operation : {"muster.agreement.0", "muster.agreement.1"}) {
    for (const auto moment : {FakeJob::Moment::kBefore, FakeJob::Moment::kAfter}) {
      FakeJob job(3);
      job.LoseAt(0, operation, 2, moment);
      std::array<Program, 3> programs;
      job.RunAll([&](FakeRuntime& runtime) { programs[runtime.id()].Run(runtime); });
      CheckFinished(programs[1]);
      CheckFinished(programs[2]);
    }
  }
}

TEST_CASE("run recovers from a loss in its first sync") {
  FakeJob job(3);
  job.LoseAt(0, "muster.sync.tensors.0");
  std::array<Program, 3> programs;
  programs[1].step = 1;  // Not what rank 0 would have spread.
  programs[1].total = 1;
  job.RunAll([&](FakeRuntime& runtime) { programs[runtime.id()].Run(runtime); });
  CheckFinished(programs[1]);
  CheckFinished(programs[2]);
}

TEST_CASE("run recovers from a second loss while it recovers from the first") {
  FakeJob job(4);
  job.LoseAt(3, "ones", 4);
  job.LoseAt(0, "muster.sync.claims", 2);
  std::array<Program, 4> programs;
  job.RunAll([&](FakeRuntime& runtime) { programs[runtime.id()].Run(runtime); });
  CheckFinished(programs[1]);
  CheckFinished(programs[2]);
  CHECK(programs[1].log.back() == "train from 3, size 2");
}

TEST_CASE("run takes newcomers in at the agreed commit and goes on from the live values") {
  FakeJob job(2);
  const int newcomer = job.AddNewcomer();
  std::array<Program, 3> programs;
  const auto grow_after_step_3 = [&](int id) {
    return [&, id](State&) {
      if (id == 0 && programs[0].step == 3) {
        job.WaitUntilWarm(newcomer);
        job.NotifyPending();
      }
    };
  };
  job.RunAll([&](FakeRuntime& runtime) {
    programs[runtime.id()].Run(runtime, grow_after_step_3(runtime.id()));
  });
  for (const Program& program : programs) {
    CheckFinished(program);
  }
  // Rank 1 may have voted for commit 3 before it was told; rank 0 was told before.
  CHECK(programs[0].log ==
        std::vector<std::string>{
            "train from 0, size 2", "reset a, size 3", "reset b", "train from 4, size 3"});
  CHECK(programs[2].log == std::vector<std::string>{"train from 4, size 3"});
  CHECK(job.worker(newcomer).entered == 1);
  CHECK(job.worker(newcomer).synced == std::vector<muster::CommitId>{{1, 4}});
}

TEST_CASE("run releases a worker that was drained, with its commit kept by the others") {
  FakeJob job(3);
  std::array<Program, 3> programs;
  job.RunAll([&](FakeRuntime& runtime) {
    programs[runtime.id()].Run(runtime, [&, id = runtime.id()](State&) {
      if (id == 2 && programs[2].step == 5) {
        job.Drain(2);
      }
    });
  });
  CheckFinished(programs[0]);
  CheckFinished(programs[1]);
  CHECK(programs[2].end == RunEnd::kReleased);
  CHECK(programs[2].step == 6);
  CHECK(job.worker(2).done == 0);
  CHECK(programs[0].log.back() == "train from 6, size 2");
}

TEST_CASE("run passes other exceptions on and leaves State as it is") {
  FakeJob job(1);
  Program program;
  CHECK_THROWS_WITH(job.RunAll([&](FakeRuntime& runtime) {
    program.Run(runtime, [&](State&) {
      if (program.step == 4) {
        throw std::runtime_error("the user's own");
      }
    });
  }),
                    "the user's own");
  CHECK(program.step == 4);
  CHECK(job.worker(0).done == 0);
}

TEST_CASE("run makes another round when a callback meets a loss") {
  FakeJob job(3);
  job.LoseAt(2, "ones", 3);
  std::array<int64_t, 3> steps{};
  std::array<int, 3> callbacks{};
  job.LoseAt(1, "callback", 2);  // Once rank 0 is in its callback, too.
  job.RunAll([&](FakeRuntime& runtime) {
    int64_t& step = steps[runtime.id()];
    State state;
    state.value("step", step);
    state.register_reset_callbacks({[&] {
      ++callbacks[runtime.id()];
      for (int i = 0; i < 2; ++i) {
        worker::Submission submission;
        submission.name = "callback";
        runtime.Submit(std::move(submission)).wait();
      }
    }});
    RunLoop(runtime, state, [&](State& s) {
      for (; step < kSteps; s.commit()) {
        SumOfOnes(runtime);
        ++step;
      }
    });
  });
  CHECK(steps[0] == kSteps);
  CHECK(callbacks[0] == 2);
}

TEST_CASE("run can be entered again") {
  FakeJob job(2);
  std::array<Program, 2> programs;
  job.RunAll([&](FakeRuntime& runtime) {
    Program& program = programs[runtime.id()];
    program.Run(runtime);
    program.step = 0;
    program.total = 0;
    program.Run(runtime);
  });
  CheckFinished(programs[0]);
  CHECK(job.worker(0).entered == 2);
  CHECK(job.worker(0).done == 2);
}

TEST_CASE("run survives losses and growth at random places without a wrong step") {
  for (int seed = 0; seed < 30; ++seed) {
    INFO("seed " << seed);
    FakeJob job(4);
    const int newcomer = job.AddNewcomer();
    job.LoseAt(seed % 4, seed % 2 == 0 ? "ones" : "muster.agreement.1", 1 + seed % 5);
    job.LoseAt((seed + 1) % 4, seed % 3 == 0 ? "muster.sync.end" : "ones", 2 + seed % 3);
    std::array<Program, 5> programs;
    job.RunAll([&](FakeRuntime& runtime) {
      if (runtime.id() != newcomer) {
        job.WaitUntilWarm(newcomer);  // Else the losses may all have come before it.
      }
      programs[runtime.id()].Run(runtime);
    });
    CheckFinished(programs[(seed + 2) % 4]);
    CheckFinished(programs[(seed + 3) % 4]);
    CheckFinished(programs[newcomer]);
  }
}

// ---------------------------------------------------------------- trace

std::vector<nlohmann::json> ReadTrace(const std::string& path) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    lines.push_back(nlohmann::json::parse(line));
  }
  return lines;
}

TEST_CASE("run traces worlds, commits, losses, restores and syncs") {
  const auto path = std::filesystem::temp_directory_path() /
                    ("muster_elastic_run_test_" + std::to_string(::getpid()));
  {
    FakeJob job(2, path.string());
    job.LoseAt(1, "ones", 3);
    std::array<Program, 2> programs;
    job.RunAll([&](FakeRuntime& runtime) { programs[runtime.id()].Run(runtime); });
  }
  std::vector<std::string> events;
  for (const nlohmann::json& line : ReadTrace(path)) {
    // A survivor (rank 0) in generation 2, or before; worker 1 has rank 1 in generation 1.
    if (line["rank"] == 0) {
      events.push_back(line["event"]);
      CHECK(line["host"] == "fake");
      CHECK(line["size"] == (line["generation"] == 1 ? 2 : 1));
    }
    if (line["event"] == "restore") {
      CHECK(line["commit"] == nlohmann::json({1, 2}));
      CHECK(line["generation"] == 1);
    }
    if (line["event"] == "lost") {
      CHECK(line["reason"] == "worker 1 was lost");
    }
  }
  const std::vector<std::string> start(events.begin(), events.begin() + 8);
  CHECK(start == std::vector<std::string>{
                     "world", "sync", "commit", "commit", "lost", "restore", "world", "sync"});
  CHECK(events.size() == 8 + kSteps - 2);
  std::filesystem::remove(path);
}

// ---------------------------------------------------------------- the end of the process

TEST_CASE("a released worker flushes its output and exits with 0") {
  int pipe[2];
  REQUIRE(::pipe(pipe) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(pipe[1], STDOUT_FILENO);
    static FakeJob job(2);  // Its threads are none: this thread is the newcomer.
    const int newcomer = job.AddNewcomer();
    job.Drain(newcomer);  // It came too late.
    worker::SetThreadRuntime(&job.worker(newcomer));
    static int64_t step = 0;
    static State state;
    state.value("step", step);
    std::printf("buffered");
    run(state, [](State&) { std::abort(); });
    ::_exit(99);
  }
  ::close(pipe[1]);
  char text[64] = {};
  const ssize_t size = ::read(pipe[0], text, sizeof text - 1);
  ::close(pipe[0]);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  CHECK(std::string(text, size > 0 ? size : 0) == "buffered");
}

}  // namespace
}  // namespace muster::elastic
