#include "launcher/chaos/job_processes.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "common/process.h"
#include "common/secret.h"
#include "common/worker_page.h"
#include "test/support/sleeper.h"

namespace muster::launcher {
namespace {

std::string Mark(const std::string& job) {
  return std::string(kEnvJob) + "=" + job;
}

// Field 22 of /proc/PID/stat; the name of what is started here holds no blank.
uint64_t StartOf(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string field;
  for (int i = 0; i < 22; ++i) {
    stat >> field;
  }
  return std::stoull(field);
}

JobProcess Entry(pid_t pid, uint64_t start) {
  JobProcess process;
  process.pid = pid;
  process.start = start;
  return process;
}

TEST_CASE("a running job is found by the beginning of its id") {
  const std::string job = RandomHex(8);
  const std::string other = RandomHex(8);
  const std::string worker = std::string(kEnvIncarnation) + "=1";
  const Sleeper of_job({Mark(job), worker});
  const Sleeper of_other({Mark(other), worker});
  REQUIRE(FindRunningJob(job.substr(0, 12)).ok());
  CHECK(FindRunningJob(job.substr(0, 12)).value() == job);
  const Status several = FindRunningJob("").status();
  CHECK(several.message().find("say which") != std::string::npos);
  CHECK(several.message().find(job) != std::string::npos);
  CHECK(several.message().find(other) != std::string::npos);
  CHECK(FindRunningJob("x" + job).status().message().find("no job x" + job) == 0);
}

TEST_CASE("what has taken no page is no victim, though the job is there") {
  const std::string job = RandomHex(8);
  bool present = true;
  CHECK(ScanJob(job, present).empty());
  CHECK_FALSE(present);
  const Sleeper shell({Mark(job)});
  CHECK(ScanJob(job, present).empty());
  CHECK_FALSE(present);
  CHECK_FALSE(FindRunningJob(job).ok());
  const Sleeper sleeper({Mark(job), std::string(kEnvIncarnation) + "=4"});
  CHECK(ScanJob(job, present).empty());
  CHECK(present);
}

TEST_CASE("a process with another start is not the victim") {
  const Sleeper sleeper({});
  CHECK_FALSE(OpenVictim(Entry(sleeper.pid(), 1)).valid());
  CHECK_FALSE(OpenVictim(Entry(sleeper.pid(), 0)).valid());
}

TEST_CASE("what has ended is no victim, though nobody has reaped it") {
  SpawnOptions options;
  options.argv = {"/bin/sleep", "600"};
  const SpawnedProcess child = Spawn(options).value();
  const JobProcess process = Entry(child.pid, StartOf(child.pid));
  CHECK(OpenVictim(process).valid());
  REQUIRE(SendSignal(child.pidfd, SIGKILL).ok());
  siginfo_t info{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(child.pid), &info, WEXITED | WNOWAIT) == 0);
  CHECK_FALSE(OpenVictim(process).valid());
  ::waitpid(child.pid, nullptr, 0);
}

TEST_CASE("a signal reaches the process of the pidfd, and no other once that has ended") {
  SpawnOptions options;
  options.argv = {"/bin/sleep", "600"};
  const SpawnedProcess child = Spawn(options).value();
  CHECK_FALSE(HasEnded(child.pidfd));
  CHECK(SendSignal(child.pidfd, SIGKILL).ok());
  ::waitpid(child.pid, nullptr, 0);
  CHECK(HasEnded(child.pidfd));
  CHECK_FALSE(SendSignal(child.pidfd, SIGKILL).ok());
  CHECK(HasEnded(UniqueFd()));
}

TEST_CASE("exhausted descriptors are those that are open, and come back") {
  const Sleeper sleeper({});
  const JobProcess process = Entry(sleeper.pid(), 1);
  const UniqueFd pidfd = OpenPidfd(sleeper.pid());
  rlimit before{};
  ::prlimit(sleeper.pid(), RLIMIT_NOFILE, nullptr, &before);
  rlimit lowered{};
  const Result<rlimit> got = ExhaustDescriptors(process, pidfd, lowered);
  REQUIRE(got.ok());
  CHECK(got.value().rlim_cur == before.rlim_cur);
  CHECK(lowered.rlim_cur == 3);
  rlimit now{};
  ::prlimit(sleeper.pid(), RLIMIT_NOFILE, nullptr, &now);
  CHECK(now.rlim_cur == 3);
  CHECK(now.rlim_max == before.rlim_max);
  RestoreDescriptors(process, pidfd, before, lowered);
  ::prlimit(sleeper.pid(), RLIMIT_NOFILE, nullptr, &now);
  CHECK(now.rlim_cur == before.rlim_cur);
}

TEST_CASE("a limit that the process has set itself meanwhile stays") {
  const Sleeper sleeper({});
  const JobProcess process = Entry(sleeper.pid(), 1);
  const UniqueFd pidfd = OpenPidfd(sleeper.pid());
  rlimit lowered{};
  const Result<rlimit> before = ExhaustDescriptors(process, pidfd, lowered);
  REQUIRE(before.ok());
  const rlimit own{7, before.value().rlim_max};
  ::prlimit(sleeper.pid(), RLIMIT_NOFILE, &own, nullptr);
  RestoreDescriptors(process, pidfd, before.value(), lowered);
  rlimit now{};
  ::prlimit(sleeper.pid(), RLIMIT_NOFILE, nullptr, &now);
  CHECK(now.rlim_cur == 7);
}

TEST_CASE("a limit comes back as far as the process has left itself the right") {
  const Sleeper sleeper({});
  const JobProcess process = Entry(sleeper.pid(), 1);
  const UniqueFd pidfd = OpenPidfd(sleeper.pid());
  rlimit lowered{};
  const Result<rlimit> before = ExhaustDescriptors(process, pidfd, lowered);
  REQUIRE(before.ok());
  const rlimit own{lowered.rlim_cur, before.value().rlim_cur - 1};
  ::prlimit(sleeper.pid(), RLIMIT_NOFILE, &own, nullptr);
  RestoreDescriptors(process, pidfd, before.value(), lowered);
  rlimit now{};
  ::prlimit(sleeper.pid(), RLIMIT_NOFILE, nullptr, &now);
  CHECK(now.rlim_cur == own.rlim_max);
}

}  // namespace
}  // namespace muster::launcher
