#include "launcher/agent/process_scan.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "common/process.h"
#include "common/secret.h"
#include "common/unique_fd.h"
#include "common/worker_page.h"
#include "test/support/sleeper.h"

namespace muster::launcher {
namespace {

bool Holds(const std::vector<ProcessEntry>& entries, pid_t pid) {
  return std::any_of(entries.begin(), entries.end(), [pid](const ProcessEntry& entry) {
    return entry.pid == pid;
  });
}

std::vector<std::string> Marks(const std::string& job, const std::string& host) {
  return {std::string(kEnvJob) + "=" + job, std::string(kEnvHost) + "=" + host};
}

}  // namespace

TEST_CASE("process scan finds descendants and nothing else") {
  const Sleeper child({});
  const std::vector<ProcessEntry> all = ListProcesses();
  CHECK(Holds(all, ::getpid()));
  CHECK(Holds(DescendantsOf(::getpid(), all), child.pid()));
  CHECK_FALSE(Holds(DescendantsOf(::getpid(), all), ::getpid()));
  CHECK_FALSE(Holds(DescendantsOf(child.pid(), all), child.pid()));
}

TEST_CASE("process scan still sees who is there when its descriptors are exhausted") {
  const Sleeper child({});
  REQUIRE(ThreadStates(child.pid(), {child.pid()}).size() == 1);
  REQUIRE(Holds(ListProcesses(), child.pid()));
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const UniqueFd lowest_free(::dup(STDIN_FILENO));
  const rlimit exhausted{static_cast<rlim_t>(lowest_free.get()), before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &exhausted) == 0);
  // More than once: each look has to give the descriptor back.
  std::string states;
  bool seen = true;
  for (int i = 0; i < 3; ++i) {
    states += ThreadStates(child.pid(), {child.pid()});
    seen &= Holds(ListProcesses(), child.pid());
  }
  const int refused = ::dup(STDIN_FILENO);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(refused == -1);
  CHECK(states.size() == 3);
  CHECK(seen);
}

TEST_CASE("process scan tells the states of threads, as far as they can be seen") {
  const Sleeper child({});
  CHECK(ThreadStates(::getpid(), {::getpid()}) == "R");
  ::kill(child.pid(), SIGSTOP);
  int status = 0;
  REQUIRE(::waitpid(child.pid(), &status, WUNTRACED) == child.pid());
  CHECK(ThreadStates(child.pid(), {0, child.pid(), ::getpid()}) == "T");
  CHECK(ThreadStates(child.pid()) == "T");
  CHECK(ThreadStates(0).empty());
}

TEST_CASE("process scan leaves zombies out") {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::_exit(0);
  }
  siginfo_t info{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) == 0);
  CHECK_FALSE(Holds(ListProcesses(), pid));
  ::waitpid(pid, nullptr, 0);
}

TEST_CASE("process scan compares whole entries of an environment") {
  const Sleeper child({"FIRST=1", "NAME=value", "LAST=x"});
  const auto holds = [&](std::vector<std::string> entries) {
    return EnvironmentHolds(child.pid(), entries);
  };
  CHECK(holds({"FIRST=1"}));
  CHECK(holds({"NAME=value", "LAST=x"}));
  CHECK_FALSE(holds({"NAME=valu"}));
  CHECK_FALSE(holds({"AME=value"}));
  CHECK_FALSE(holds({"NAME=value", "OTHER=1"}));
  CHECK_FALSE(EnvironmentHolds(0x7FFFFFFF, std::vector<std::string>{"NAME=value"}));
}

TEST_CASE("sweep kills what carries the marks of one job and host") {
  const std::string job = RandomHex(8);
  const Sleeper mine(Marks(job, "host-a"));
  const Sleeper other_host(Marks(job, "host-b"));
  const Sleeper other_job(Marks("another" + job, "host-a"));
  CHECK(Sweep({job, "host-a", false}, std::chrono::seconds(5)));
  CHECK(mine.Ended());
  CHECK_FALSE(other_host.Ended());
  CHECK_FALSE(other_job.Ended());
}

}  // namespace muster::launcher
