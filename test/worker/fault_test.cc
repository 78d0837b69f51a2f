#include "worker/fault.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>

#include "muster/muster.h"

namespace muster::worker {
namespace {

std::string Complaint(std::string_view text) {
  const Result<std::vector<Fault>> faults = ParseFaults(text);
  return faults.ok() ? "none" : faults.status().message();
}

// Faults are the process's; each case leaves none behind.
struct Configured {
  explicit Configured(const char* spec, bool first_start = true)
      : status(ConfigureFaults(spec, first_start)) {}
  ~Configured() { static_cast<void>(ConfigureFaults(nullptr, true)); }
  Status status;
};

TEST_CASE("a fault is read from its parts") {
  const auto faults = ParseFaults("sync:2:kill,commit_copy:*:delay=250+:3,step:0:throw");
  REQUIRE(faults.ok());
  REQUIRE(faults.value().size() == 3);
  CHECK(faults.value()[0] == Fault{.point = "sync", .rank = 2, .action = FaultAction::kKill});
  CHECK(faults.value()[1] == Fault{.point = "commit_copy",
                                   .rank = std::nullopt,
                                   .action = FaultAction::kDelay,
                                   .delay = std::chrono::milliseconds(250),
                                   .nth = 3,
                                   .replacements = true});
  CHECK(faults.value()[2] == Fault{.point = "step", .rank = 0, .action = FaultAction::kThrow});
  CHECK(ParseFaults("").value().empty());
}

TEST_CASE("a fault that does not parse is quoted with the reason") {
  CHECK_THAT(Complaint("sync"), Catch::Contains("\"sync\": it needs three or four parts"));
  CHECK_THAT(Complaint("sync:1:kill:1:1"), Catch::Contains("three or four parts"));
  CHECK_THAT(Complaint("sink:1:kill"), Catch::Contains("no point has the name \"sink\""));
  CHECK_THAT(Complaint("sync:x:kill"), Catch::Contains("the rank"));
  CHECK_THAT(Complaint("sync:-1:kill"), Catch::Contains("the rank"));
  CHECK_THAT(Complaint("sync:1:burn"), Catch::Contains("the action"));
  CHECK_THAT(Complaint("sync:1:delay=x"), Catch::Contains("the action"));
  CHECK_THAT(Complaint("sync:1:delay5"), Catch::Contains("the action"));
  CHECK_THAT(Complaint("sync:1:kill:0"), Catch::Contains("the passage"));
  CHECK_THAT(Complaint("sync:1:kill:x"), Catch::Contains("the passage"));
  CHECK_THAT(Complaint("formation:1:throw"), Catch::Contains("nobody could catch"));
  CHECK_THAT(Complaint("sync:1:kill,"), Catch::Contains("\"\""));
  CHECK(Complaint("formation:1:kill") == "none");
}

TEST_CASE("a fault strikes its rank at its nth passage, once") {
  const Configured faults("step:1:throw:2");
  REQUIRE(faults.status.ok());
  CHECK_NOTHROW(FaultPoint("step", 1));
  CHECK_NOTHROW(FaultPoint("commit", 1));
  CHECK_THROWS_AS(FaultPoint("step", 1), WorkersLost);
  CHECK_NOTHROW(FaultPoint("step", 1));
}

TEST_CASE("a fault stays with the worker that had its rank first") {
  {
    const Configured faults("step:1:throw");
    CHECK_NOTHROW(FaultPoint("formation", 2));
    CHECK_NOTHROW(FaultPoint("step", 1));  // It has taken over the rank of a lost worker.
  }
  const Configured faults("step:1:throw");
  CHECK_NOTHROW(FaultPoint("formation", 1));
  CHECK_THROWS_AS(FaultPoint("step", 0), WorkersLost);
}

TEST_CASE("a fault for any rank counts all of them") {
  const Configured faults("step:*:throw:2");
  CHECK_NOTHROW(FaultPoint("step", 4));
  CHECK_THROWS_AS(FaultPoint("step", 0), WorkersLost);
}

TEST_CASE("a fault spares replacements unless it is marked") {
  const Configured faults("step:0:throw,commit:0:throw+", false);
  CHECK_NOTHROW(FaultPoint("step", 0));
  CHECK_THROWS_AS(FaultPoint("commit", 0), WorkersLost);
}

TEST_CASE("a bad fault configures nothing") {
  const Configured faults("step:0:throw,step:0:nothing");
  CHECK(faults.status.code() == StatusCode::kInvalid);
  CHECK_NOTHROW(FaultPoint("step", 0));
}

// How a child ends that passes the point.
int EndOfChild(const char* spec) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(STDERR_FILENO);
    if (!ConfigureFaults(spec, true).ok()) {
      ::_exit(99);
    }
    FaultPoint("commit", 0);
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, WUNTRACED) == child);
  if (WIFSTOPPED(status)) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  return status;
}

TEST_CASE("a fault ends or stops the process") {
  CHECK(WEXITSTATUS(EndOfChild("commit:1:kill")) == 0);
  int status = EndOfChild("commit:0:kill");
  CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
  status = EndOfChild("commit:0:exit");
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 13));
  status = EndOfChild("commit:0:stop");
  CHECK((WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP));
}

TEST_CASE("a delay waits at the point") {
  const Configured faults("step:0:delay=30");
  const auto before = std::chrono::steady_clock::now();
  FaultPoint("step", 0);
  CHECK(std::chrono::steady_clock::now() - before >= std::chrono::milliseconds(30));
}

}  // namespace
}  // namespace muster::worker
