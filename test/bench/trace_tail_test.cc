#include "bench/trace_tail.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "bench/temp_directory.h"

namespace muster::bench {
namespace {

class Written {
 public:
  void Append(const std::string& text) { std::ofstream(path_, std::ios::app) << text; }
  std::vector<TraceEvent> Read() { return tail_.Read().value(); }
  TraceTail& tail() { return tail_; }
  const std::string& path() const { return path_; }

 private:
  TempDirectory folder_ = TempDirectory::Make().value();
  std::string path_ = folder_.path() + "/trace";
  TraceTail tail_ = TraceTail::Make(path_).value();
};

}  // namespace

TEST_CASE("each line of a trace is read once, when it is complete") {
  Written trace;
  CHECK(trace.Read().empty());
  trace.Append(R"({"event":"step","pid":7,"t_ns":5,"generation":3,"incarnation":2,"rank":1,)");
  CHECK(trace.Read().empty());
  trace.Append(
      "\"size\":4}\n"
      R"({"event":"reaped","pid":1,"t_ns":6,"signal":9})"
      "\n");
  const std::vector<TraceEvent> events = trace.Read();
  REQUIRE(events.size() == 2);
  CHECK(events[0].kind == "step");
  CHECK(events[0].t_ns == 5);
  CHECK(events[0].generation == 3);
  CHECK(events[0].incarnation == 2);
  CHECK(events[0].pid == 7);
  CHECK(events[0].rank == 1);
  CHECK(events[0].size == 4);
  CHECK(events[1].signal == 9);
  CHECK(events[1].incarnation == 0);
  CHECK(trace.Read().empty());
}

TEST_CASE("commits are left out of a trace") {
  Written trace;
  trace.Append(R"({"commit":[1,2],"event":"commit","pid":7,"t_ns":5})"
               "\n");
  CHECK(trace.Read().empty());
}

TEST_CASE("a long trace is read to its end and gives its disk space back") {
  Written trace;
  std::string lines;
  constexpr size_t kLines = 20'000;
  for (size_t i = 0; i < kLines; ++i) {
    lines += R"({"event":"step","pid":7,"t_ns":)" + std::to_string(i) + "}\n";
  }
  trace.Append(lines);
  const std::vector<TraceEvent> events = trace.Read();
  REQUIRE(events.size() == kLines);
  CHECK(events.back().t_ns == kLines - 1);
  struct stat status {};
  REQUIRE(::stat(trace.path().c_str(), &status) == 0);
  CHECK(static_cast<size_t>(status.st_size) == lines.size());
  CHECK(static_cast<size_t>(status.st_blocks) * 512 < lines.size() / 4);
  trace.Append(R"({"event":"exit","pid":7,"t_ns":1})"
               "\n");
  CHECK(trace.Read().size() == 1);
}

TEST_CASE("a line that is no event is an error that shows it") {
  for (const std::string line :
       {R"({"event":"step","pid":7})", R"({"event":3,"pid":7,"t_ns":1})", R"([1])", "no json"}) {
    Written trace;
    trace.Append(line + "\n");
    const Result<std::vector<TraceEvent>> events = trace.tail().Read();
    REQUIRE_FALSE(events.ok());
    CHECK(events.status().message().find(line) != std::string::npos);
  }
}

}  // namespace muster::bench
