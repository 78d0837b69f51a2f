// test_cases: programs of user cases that need other calls than test_worker makes; one mode each,
// on the public API alone. What they live through goes to $TEST_LOG.

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "muster/elastic.h"
#include "muster/muster.h"
#include "worker_support.h"

namespace {

using muster::test::Arguments;
using muster::test::EventLog;
using std::chrono::steady_clock;

constexpr const char* kUsage = R"(test_cases [option value]...
  --mode NAME
  --how HOW            crash: throw, abort or exit
  --steps N            in_flight
  --mb N               in_flight: size of what is under way
  --count N            again: pairs of init() and shutdown()
  --go-file PATH       in_flight: stays in the loop, crash: does not, until the file exists)";

struct Context {
  const Arguments& arguments;
  const EventLog& log;
};

float Sum(float value, const char* name, muster::ProcessSet set = {}) {
  muster::Options options;
  options.name = name;
  options.op = muster::Op::kSum;
  options.set = set;
  const muster::Tensor tensor{&value, muster::DType::kF32, {}, {}};
  muster::allreduce(tensor, tensor, options);
  return value;
}

void Wait(const EventLog& log, const std::function<void()>& call) {
  const auto begin = steady_clock::now();
  const auto log_end = [&](const char* how, const char* message) {
    const std::chrono::duration<double> took = steady_clock::now() - begin;
    log.Write("waited", {{"how", how}, {"message", message}, {"seconds", took.count()}});
  };
  try {
    call();
    log_end("done", "");
  } catch (const muster::WorkersLost& error) {
    log_end("WorkersLost", error.what());
    throw;
  } catch (const muster::Error& error) {
    log_end("Error", error.what());
  }
}

int ThreadCount() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

[[noreturn]] void CrashAs(const std::string& how) {
  // Without the words that the harness takes for an accident.
  std::set_terminate([] { std::abort(); });
  if (how == "exit") {
    ::_exit(9);
  }
  std::thread([&how] {
    if (how == "throw") {
      throw std::runtime_error("on purpose");
    }
    std::abort();
  }).join();
  ::_exit(99);
}

// Case 42. Each rank is in another call when rank 1 goes, which a file tells it to.
void Crash(const Context& context) {
  muster::elastic::State state;
  muster::elastic::run(state, [&](muster::elastic::State& s) {
    Sum(1, "together");
    s.commit();
    context.log.Write("entry");
    if (muster::rank() == 0) {
      Sum(1, "a");
    } else if (muster::rank() == 1) {
      const std::string go_file = context.arguments.Text("go-file");
      while (::access(go_file.c_str(), F_OK) != 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      CrashAs(context.arguments.Text("how"));
    } else {
      float value = 0;
      muster::broadcast({&value, muster::DType::kF32, {}, {}}, 0, {.name = "b"});
    }
  });
}

// Case 85. The other member of a set is gone before the set's first collective.
void SetWithoutPeer(const Context& context) {
  bool first = true;
  muster::elastic::State state;
  muster::elastic::run(state, [&](muster::elastic::State& s) {
    Sum(1, "together");
    s.commit();
    if (first) {
      first = false;
      const muster::ProcessSet set = muster::add_process_set({0, 1});
      muster::barrier();
      if (muster::rank() == 0) {
        context.log.Write("dies");
        ::_exit(86);
      }
      if (muster::rank() == 1) {
        Wait(context.log, [set] { Sum(1, "first", set); });
      }
    }
    Sum(1, "afterwards");
    muster::trace_step(1);
    context.log.Write("done");
  });
}

// Case 125. A large allreduce is under way at whatever place a loss comes.
void InFlight(const Context& context) {
  const auto steps = context.arguments.Number("steps", 10);
  const std::string go_file = context.arguments.Text("go-file");
  std::vector<float> big(static_cast<size_t>(context.arguments.Number("mb", 16)) * 262144, 1.0F);
  const muster::Tensor tensor{
      big.data(), muster::DType::kF32, {static_cast<int64_t>(big.size())}, {}};
  int64_t step = 0;
  muster::elastic::State state;
  state.value("step", step);
  muster::elastic::run(state, [&](muster::elastic::State& s) {
    while (step < steps || Sum(::access(go_file.c_str(), F_OK) == 0 ? 0 : 1, "stay") > 0) {
      muster::Handle handle = muster::allreduce_async(tensor, tensor, {.name = "big"});
      Sum(1, "small");
      handle.wait();
      muster::trace_step(++step);
      s.commit();
    }
    context.log.Write("done", {{"step", step}});
  });
}

// Case 123. A world of one, for a worker of a job joins it once.
void Again(const Context& context) {
  muster::shutdown();  // Without init().
  int base = 0;
  const auto count = context.arguments.Number("count", 100);
  for (int64_t i = 0; i < count; ++i) {
    muster::init();
    muster::init();
    if (Sum(1, "s") != static_cast<float>(muster::size())) {
      context.log.Write("wrong");
    }
    muster::shutdown();
    muster::shutdown();
    if (i == 0) {
      base = ThreadCount();
    }
  }
  context.log.Write("again", {{"count", count}, {"base", base}, {"threads", ThreadCount()}});
}

// Case 124. What nobody else submits is pending when another thread shuts down.
void ShutdownMeanwhile(const Context& context) {
  Sum(1, "together");
  if (muster::rank() == 1) {
    float value = 1;
    const muster::Tensor tensor{&value, muster::DType::kF32, {}, {}};
    muster::Handle handle = muster::allreduce_async(tensor, tensor, {.name = "pending"});
    std::thread other([] { muster::shutdown(); });
    Wait(context.log, [&handle] { handle.wait(); });
    other.join();
    Wait(context.log, [] { Sum(1, "afterwards"); });
  }
}

const std::map<std::string, void (*)(const Context&)>& Modes() {
  static const std::map<std::string, void (*)(const Context&)> kModes{
      {"crash", Crash},
      {"set_without_peer", SetWithoutPeer},
      {"in_flight", InFlight},
      {"again", Again},
      {"shutdown_meanwhile", ShutdownMeanwhile},
  };
  return kModes;
}

}  // namespace

int main(int argc, char** argv) {
  const EventLog log;
  const Arguments arguments(argc, argv, kUsage);
  const std::string mode = arguments.Text("mode");
  const auto it = Modes().find(mode);
  if (it == Modes().end()) {
    std::cerr << kUsage << std::endl;
    return 2;
  }
  try {
    if (mode != "again") {
      muster::init();
      log.Write("init");
    }
    it->second({arguments, log});
    muster::shutdown();
    log.Write("end");
    return 0;
  } catch (const muster::Error& error) {
    std::cerr << "test_cases: " << error.what() << std::endl;
    return 1;
  }
}
