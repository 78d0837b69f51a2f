// How the agent starts workers. Programs that lie where no disk answers, for which a lease stands
// in: whoever opens such a file, execve(2) included, waits until the lease is given back.

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <string>
#include <vector>

#include "test/launcher/agent/agent_fixture.h"
#include "test/support/temporary_folder.h"

namespace muster::launcher {
namespace {

using Case = v1::AgentReport;

// A script, because the file of a running program cannot have a lease.
class Program {
 public:
  explicit Program(const std::string& folder) : path_(folder + "/program") {
    std::ofstream(path_) << "#!/bin/sh\nexec " << FakeWorkerPath() << " join\n";
    ::chmod(path_.c_str(), 0755);
  }
  const std::string& path() const { return path_; }

  void Withhold() {
    ::signal(SIGIO, SIG_IGN);  // Somebody waits.
    fd_ = UniqueFd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    REQUIRE(::fcntl(fd_.get(), F_SETLEASE, F_WRLCK) == 0);
  }
  void GiveBack() { fd_.Reset(); }

 private:
  const std::string path_;
  UniqueFd fd_;
};

bool HasStarted(FakeDriver& driver, uint64_t incarnation) {
  const std::vector<v1::AgentReport> reports = driver.reports();
  return std::any_of(reports.begin(), reports.end(), [&](const v1::AgentReport& report) {
    return report.worker_started().incarnation() == incarnation;
  });
}

}  // namespace

TEST_CASE("agent tells of a death while the program of another worker cannot be read") {
  const TemporaryFolder folder;
  Program program(folder.Path(""));
  AgentUnderTest agent(AgentUnderTest::Command{{program.path()}});
  const v1::WorkerJoined first = agent.SpawnAndJoin(1);
  program.Withhold();
  agent.Spawn(2, 1);
  REQUIRE(agent.driver().AwaitSummaries(2));
  ::kill(static_cast<pid_t>(first.pid()), SIGKILL);
  agent.driver().Await(Case::kWorkerLost, 1);
  agent.driver().Await(Case::kWorkerExited, 1);
  CHECK_FALSE(HasStarted(agent.driver(), 2));
  program.GiveBack();
  agent.driver().Await(Case::kWorkerStarted, 2);
  agent.driver().Await(Case::kWorkerJoined, 2);
}

TEST_CASE("agent kills a worker whose program cannot be read") {
  const TemporaryFolder folder;
  Program program(folder.Path(""));
  AgentUnderTest agent(AgentUnderTest::Command{{program.path()}});
  program.Withhold();
  agent.Spawn(1);
  REQUIRE(agent.driver().AwaitSummaries(2));
  CHECK_FALSE(HasStarted(agent.driver(), 1));
  agent.Kill(1, true);
  CHECK(agent.driver().Await(Case::kWorkerExited, 1).worker_exited().signal() == SIGKILL);
  agent.Stop();
  CHECK(agent.AwaitExit() == 0);
}

// The kernel passes a limit of 0 over where the pattern names a program.
TEST_CASE("agent lets no worker dump core unless the job asks for it") {
  const std::vector<std::string> command{
      "/bin/sh", "-c", "grep -c 'core file size *1 *1 ' /proc/self/limits"};
  AgentUnderTest agent(AgentUnderTest::Command{command});
  agent.Spawn(1);
  CHECK(agent.driver().AwaitOutput("1\n"));
  AgentUnderTest asked(AgentUnderTest::Command{command, {{"MUSTER_CORE_DUMPS", "1"}}});
  asked.Spawn(1);
  CHECK(asked.driver().AwaitOutput("0\n"));
}

}  // namespace muster::launcher
