#include "worker/collective_options.h"

#include <sched.h>
#include <spdlog/sinks/ostream_sink.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "common/log.h"

namespace muster::worker {
namespace {

using Catch::Matchers::Contains;

/// Sets the variables for one test, and takes all of them away afterwards.
class Environment {
 public:
  explicit Environment(const std::map<std::string, std::string>& variables) {
    Clear();
    for (const auto& [name, value] : variables) {
      ::setenv(name.c_str(), value.c_str(), 1);
    }
  }
  ~Environment() { Clear(); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  static void Clear() {
    for (const char* name : {"HOROVOD_FUSION_THRESHOLD",
                             "HOROVOD_CACHE_CAPACITY",
                             "HOROVOD_CPU_OPERATIONS",
                             "MUSTER_CPU_OPERATIONS",
                             "HOROVOD_THREAD_AFFINITY"}) {
      ::unsetenv(name);
    }
  }
};

CollectiveOptions Read(const std::map<std::string, std::string>& variables) {
  const Environment environment(variables);
  const Result<CollectiveOptions> options = ReadCollectiveOptions();
  INFO(options.status().message());
  REQUIRE(options.ok());
  return options.value();
}

std::string ErrorOf(const std::string& name, const std::string& value) {
  const Environment environment(std::map<std::string, std::string>{{name, value}});
  const Result<CollectiveOptions> options = ReadCollectiveOptions();
  return options.ok() ? "none" : options.status().message();
}

cpu_set_t MaskOfThisThread() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  REQUIRE(::sched_getaffinity(0, sizeof mask, &mask) == 0);
  return mask;
}

bool IsPinnedTo(int core) {
  const cpu_set_t mask = MaskOfThisThread();
  return CPU_COUNT(&mask) == 1 && CPU_ISSET(core, &mask);
}

/// A core on which this thread may run.
int AnyCore() {
  const cpu_set_t mask = MaskOfThisThread();
  int core = 0;
  while (!CPU_ISSET(core, &mask)) {
    ++core;
  }
  return core;
}

/// What the log of this process gets meanwhile.
class LogCapture {
 public:
  LogCapture() : before_(spdlog::default_logger()) {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_)));
  }
  ~LogCapture() { spdlog::set_default_logger(before_); }
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;

  std::string text() const { return text_.str(); }

 private:
  std::shared_ptr<spdlog::logger> before_;
  std::ostringstream text_;
};

/// In a thread of its own, which takes its mask with it.
template <class F>
void InThread(F&& body) {
  std::jthread thread(std::forward<F>(body));
}

}  // namespace

TEST_CASE("collective options have the built-in values in an empty environment") {
  for (const auto& variables : {std::map<std::string, std::string>{},
                                {{"HOROVOD_FUSION_THRESHOLD", ""},
                                 {"HOROVOD_CACHE_CAPACITY", ""},
                                 {"MUSTER_CPU_OPERATIONS", ""},
                                 {"HOROVOD_THREAD_AFFINITY", ""}}}) {
    const CollectiveOptions options = Read(variables);
    CHECK(options.fusion_bytes == 134'217'728);
    CHECK(options.cache_capacity == 65'536);
    CHECK(options.backend == BackendChoice::kAuto);
    CHECK(options.affinity.empty());
  }
}

TEST_CASE("collective options are read from the environment") {
  CHECK(Read({{"HOROVOD_FUSION_THRESHOLD", "0"}}).fusion_bytes == 0);
  CHECK(Read({{"HOROVOD_FUSION_THRESHOLD", "1"}}).fusion_bytes == 1);
  CHECK(Read({{"HOROVOD_FUSION_THRESHOLD", "1099511627776"}}).fusion_bytes == 1'099'511'627'776);
  CHECK(Read({{"HOROVOD_CACHE_CAPACITY", "0"}}).cache_capacity == 0);
  CHECK(Read({{"HOROVOD_CACHE_CAPACITY", "1000000000"}}).cache_capacity == 1'000'000'000);
  CHECK(Read({{"MUSTER_CPU_OPERATIONS", "auto"}}).backend == BackendChoice::kAuto);
  CHECK(Read({{"MUSTER_CPU_OPERATIONS", "shm"}}).backend == BackendChoice::kShm);
  CHECK(Read({{"MUSTER_CPU_OPERATIONS", "hierarchical"}}).backend == BackendChoice::kHierarchical);
  CHECK(Read({{"MUSTER_CPU_OPERATIONS", "gloo"}}).backend == BackendChoice::kGloo);
  // What horovodrun sets for its controller is no choice of the user's.
  CHECK(Read({{"HOROVOD_CPU_OPERATIONS", "gloo"}}).backend == BackendChoice::kAuto);
}

TEST_CASE("collective options refuse what is no number or name, with variable and value") {
  const char* number =
      GENERATE("-1", "x", "1x", "1.5", "0x10", " 1", "1 ", "1e6", "99999999999999999999999999");
  CHECK_THAT(ErrorOf("HOROVOD_FUSION_THRESHOLD", number),
             Contains(std::string("HOROVOD_FUSION_THRESHOLD=") + number +
                      ": must be a whole number of bytes from 0 to 1099511627776"));
  CHECK_THAT(ErrorOf("HOROVOD_CACHE_CAPACITY", number),
             Contains(std::string("HOROVOD_CACHE_CAPACITY=") + number +
                      ": must be a whole number from 0 to 1000000000"));
  CHECK_THAT(ErrorOf("HOROVOD_FUSION_THRESHOLD", "1099511627777"), Contains("1099511627777"));
  CHECK_THAT(ErrorOf("HOROVOD_CACHE_CAPACITY", "1000000001"), Contains("1000000001"));
  CHECK_THAT(ErrorOf("MUSTER_CPU_OPERATIONS", "mpi"),
             Contains("MUSTER_CPU_OPERATIONS=mpi") && Contains("hierarchical"));
}

TEST_CASE("collective options keep the place of what is no core") {
  using Cores = std::vector<int>;
  const auto [text, cores] = GENERATE(table<const char*, Cores>({
      {"0", {0}},
      {"0,2,4", {0, 2, 4}},
      {" 3 , 1 ", {3, 1}},
      {"-1,1", {-1, 1}},
      {"x,1", {-1, 1}},
      {"1,,2", {1, -1, 2}},
      {"1,", {1, -1}},
      {"9999,1", {9999, 1}},
      {"99999999999999999999", {-1}},
      {"1.5", {-1}},
      {"  ", {}},
  }));
  CHECK(Read({{"HOROVOD_THREAD_AFFINITY", text}}).affinity == cores);
}

TEST_CASE("thread affinity pins the calling thread alone, by its local rank") {
  const cpu_set_t before = MaskOfThisThread();
  const int core = AnyCore();
  InThread([core] {
    REQUIRE(ApplyThreadAffinity(std::vector{0, core}, 1, 2).ok());
    CHECK(IsPinnedTo(core));
    // The first member of a world that is smaller.
    REQUIRE(ApplyThreadAffinity(std::vector{core, 0}, 0, 1).ok());
    CHECK(IsPinnedTo(core));
  });
  InThread([core] {
    REQUIRE(ApplyThreadAffinity(std::vector{core, core, -1, 9999}, 0, 2).ok());  // More than used.
    CHECK(IsPinnedTo(core));
  });
  InThread([before] {
    REQUIRE(ApplyThreadAffinity({}, 0, 2).ok());
    const cpu_set_t mask = MaskOfThisThread();
    CHECK(CPU_EQUAL(&mask, &before));
  });
  const cpu_set_t after = MaskOfThisThread();
  CHECK(CPU_EQUAL(&before, &after));
}

TEST_CASE("thread affinity that is wrong pins no thread of the host") {
  const cpu_set_t before = MaskOfThisThread();
  const auto [cores, why] = GENERATE(table<std::vector<int>, const char*>({
      {{0}, "1 entries for 2 workers"},
      {{-1, 0}, "entry 0 is not the number of a core"},
      {{0, -1}, "entry 1 is not the number of a core"},
      {{9999, 0}, "no core 9999"},
      {{0, 2'000'000'000}, "no core 2000000000"},
  }));
  for (const int local_rank : {0, 1}) {
    InThread([&, cores = cores, why = why] {
      CHECK_THAT(ApplyThreadAffinity(cores, local_rank, 2).message(), Contains(why));
      const cpu_set_t mask = MaskOfThisThread();
      CHECK(CPU_EQUAL(&mask, &before));
    });
  }
}

TEST_CASE("thread affinity gives a thread back what it had when the list no longer fits") {
  const cpu_set_t before = MaskOfThisThread();
  const int core = AnyCore();
  InThread([&] {
    REQUIRE(ApplyThreadAffinity(std::vector{core, core}, 0, 2).ok());
    CHECK_FALSE(ApplyThreadAffinity(std::vector{core, core}, 0, 3).ok());  // The world grew.
    const cpu_set_t mask = MaskOfThisThread();
    CHECK(CPU_EQUAL(&mask, &before));
    REQUIRE(ApplyThreadAffinity(std::vector{core, core}, 0, 2).ok());
    CHECK(IsPinnedTo(core));
  });
}

TEST_CASE("thread affinity warns once, by one worker of the host") {
  const LogCapture log;
  CHECK_FALSE(ApplyThreadAffinity(std::vector{0, 1'234'567}, 1, 2).ok());
  CHECK(log.text().empty());
  CHECK_FALSE(ApplyThreadAffinity(std::vector{0, 1'234'567}, 0, 2).ok());
  CHECK_THAT(log.text(), Contains("HOROVOD_THREAD_AFFINITY: there is no core 1234567"));
  const std::string once = log.text();
  CHECK_FALSE(ApplyThreadAffinity(std::vector{0, 1'234'567}, 0, 2).ok());
  CHECK(log.text() == once);
  CHECK_FALSE(ApplyThreadAffinity(std::vector{0, 1'234'567}, 0, 3).ok());  // Another fault.
  CHECK(log.text().size() > once.size());
}

}  // namespace muster::worker
