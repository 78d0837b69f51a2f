#include "common/trace.h"

#include <stdlib.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace muster {
namespace {

class TraceFolder {
 public:
  TraceFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "trace_XXXXXX").string();
    REQUIRE(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TraceFolder() { std::filesystem::remove_all(path_); }
  TraceFolder(const TraceFolder&) = delete;
  TraceFolder& operator=(const TraceFolder&) = delete;

  std::string File() const { return path_ / "trace.jsonl"; }
  std::vector<nlohmann::json> Events() const {
    std::ifstream in(File());
    std::vector<nlohmann::json> events;
    for (std::string line; std::getline(in, line);) {
      events.push_back(nlohmann::json::parse(line));
    }
    return events;
  }

 private:
  std::filesystem::path path_;
};

int64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

TEST_CASE("trace without a path writes nothing") {
  const Trace trace("");
  CHECK_FALSE(trace.enabled());
  trace.Write("init", {});
}

TEST_CASE("trace appends one line per event with time, name and pid") {
  const TraceFolder folder;
  const int64_t before = NowNs();
  const Trace trace(folder.File());
  REQUIRE(trace.enabled());
  trace.Write("init", {{"rank", 3}, {"host", "127.0.0.1"}});
  Trace(folder.File()).Write("step", {{"step", 1}});
  const std::vector<nlohmann::json> events = folder.Events();
  REQUIRE(events.size() == 2);
  CHECK(events[0]["event"] == "init");
  CHECK(events[0]["rank"] == 3);
  CHECK(events[0]["host"] == "127.0.0.1");
  CHECK(events[0]["pid"] == ::getpid());
  CHECK(events[0]["t_ns"].get<int64_t>() >= before);
  CHECK(events[1]["t_ns"].get<int64_t>() >= events[0]["t_ns"].get<int64_t>());
  CHECK(events[1]["t_ns"].get<int64_t>() <= NowNs());
}

TEST_CASE("trace survives text that is not UTF-8") {
  const TraceFolder folder;
  Trace(folder.File()).Write("finish", {{"cause", "bad \xff byte\nand a line"}});
  REQUIRE(folder.Events().size() == 1);
}

TEST_CASE("trace keeps lines of several threads and openings whole") {
  const TraceFolder folder;
  constexpr int kThreads = 4;
  constexpr int kLines = 500;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&folder, t] {
        const Trace trace(folder.File());
        for (int i = 0; i < kLines; ++i) {
          trace.Write("step", {{"step", t * kLines + i}, {"pad", std::string(200, 'x')}});
        }
      });
    }
  }
  std::set<int> steps;
  for (const nlohmann::json& event : folder.Events()) {
    steps.insert(event["step"].get<int>());
  }
  CHECK(steps.size() == kThreads * kLines);
}

TEST_CASE("trace to a file that cannot be opened is off") {
  CHECK_FALSE(Trace("/nonexistent/folder/trace").enabled());
}

}  // namespace
}  // namespace muster
