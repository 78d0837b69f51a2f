// Modes on who waits, and who does not: several threads, polling, and ranks that compute meanwhile.

#include <unistd.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <thread>

#include "collectives_modes.h"

namespace muster::test {
namespace {

using std::chrono::steady_clock;

constexpr int kThreads = 4;
constexpr int64_t kCallsPerThread = 60;

// Calls of one thread; nothing but the engine is shared with the others.
std::vector<std::string> CallFromThread(int thread) {
  std::vector<std::string> wrong;
  Chance chance(Mix(31, static_cast<uint64_t>(thread)));
  for (int64_t i = 0; i < kCallsPerThread; ++i) {
    Case of = RandomCase(chance, i, 3000);
    of.name = "thread." + std::to_string(thread) + "." + std::to_string(i % 5);
    Running running(of);
    if (i % 2 == 0) {
      running.Call();
    } else {
      running.Submit();
      running.Wait();
    }
    if (const auto found = running.Check()) {
      wrong.push_back(*found);
    }
  }
  return wrong;
}

std::unique_ptr<Running> Submitted(int64_t count, const std::string& name) {
  Case of = Single(Kind::kAllreduce, DType::kF32, {count}, Op::kSum, 8);
  of.name = name;
  auto running = std::make_unique<Running>(of);
  running->Submit();
  return running;
}

}  // namespace

// Every thread blocks in calls of its own; which one comes first differs from rank to rank.
void RunThreads(Context& context) {
  std::vector<std::vector<std::string>> wrong(kThreads);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&wrong, i] {
      try {
        wrong[static_cast<size_t>(i)] = CallFromThread(i);
      } catch (const Error& error) {
        wrong[static_cast<size_t>(i)].push_back(error.what());
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  for (const std::vector<std::string>& of_thread : wrong) {
    for (const std::string& what : of_thread) {
      context.report.Fail(what);
    }
    context.report.Check(true, "");
  }
}

// Nobody ever waits: poll() alone has to see the end.
void RunPolling(Context& context) {
  for (const int64_t count : {1, 1000, 300000}) {
    const auto running = Submitted(count, "polled");
    const auto deadline = steady_clock::now() + std::chrono::seconds(30);
    while (!running->poll() && steady_clock::now() < deadline) {
      std::this_thread::yield();
    }
    context.report.Check(running->poll(), "an operation that is polled only is never complete");
    running->Wait();
    context.report.Check(*running);
  }
}

// One rank after the other submits and then computes: the others must not wait for it to wait.
void RunAbsent(Context& context) {
  const std::string folder = context.arguments.Text("folder");
  for (const int64_t count : {1, 2000000}) {
    for (int absent = 0; absent < size(); ++absent) {
      const std::string name = "absent." + std::to_string(count) + "." + std::to_string(absent);
      const auto running = Submitted(count, name);
      const auto file_of = [&](int r) { return folder + "/" + name + "." + std::to_string(r); };
      if (rank() == absent) {
        for (const int other : Everyone()) {
          if (other != absent) {
            AwaitFile(file_of(other));
            context.report.Check(::access(file_of(other).c_str(), F_OK) == 0,
                                 "rank " + std::to_string(other) + " waits for rank " +
                                     std::to_string(absent) + ", which computes, in " + name);
          }
        }
      }
      running->Wait();
      std::ofstream(file_of(rank())) << "done\n";
      context.report.Check(*running);
      barrier();
    }
  }
}

}  // namespace muster::test
