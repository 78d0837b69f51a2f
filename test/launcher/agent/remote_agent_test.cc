// The two processes of an agent across a network, without a driver: it is being looked for during
// each of these tests.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>

#include "common/secret.h"
#include "common/version.h"
#include "common/worker_page.h"
#include "launcher/agent/agent_process.h"
#include "launcher/agent/bootstrap.h"
#include "launcher/agent/reaper.h"
#include "test/launcher/agent/agent_fixture.h"
#include "test/support/temporary_folder.h"

namespace muster::launcher {
namespace {

using Catch::Matchers::Contains;

constexpr const char* kHost = "host-a";
constexpr const char* kNobody = "127.0.0.1:1";
constexpr const char* kFarewell = "0123456789abcdef0123456789abcdef";
constexpr int kAWhileMilliseconds = 300;  // For what must not happen.

std::string AgentProgram() {
  const std::string worker = FakeWorkerPath();
  return worker.substr(0, worker.rfind('/') + 1) + "agent_under_test";
}

// /proc tells of no change, hence the poll.
bool Await(const std::function<bool()>& condition) {
  const auto deadline = std::chrono::steady_clock::now() + kHangBound;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) {
      return false;
    }
    ::poll(nullptr, 0, 5);
  }
  return true;
}

// Through a descriptor of one certain process: a number that is not there (-1 above all) would make
// kill(2) reach everybody.
void Signal(const UniqueFd& pidfd, int signal) {
  CHECK(::syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0) == 0);
}

bool EndsInAWhile(const UniqueFd& pidfd) {
  pollfd entry{pidfd.get(), POLLIN, 0};
  return ::poll(&entry, 1, kAWhileMilliseconds) == 1;
}

std::string ReadAll(UniqueFd& fd) {
  std::string all;
  std::array<char, 4096> buffer;
  ssize_t got = 0;
  while ((got = ::read(fd.get(), buffer.data(), buffer.size())) > 0) {
    all.append(buffer.data(), static_cast<size_t>(got));
  }
  return all;
}

// A process that carries a job's marks, as a worker does, and does nothing.
SpawnedProcess MarkedProcess(const std::string& job,
                             const std::string& host,
                             const std::string& directory) {
  SpawnOptions options;
  options.argv = {"sleep", "1000"};
  options.environment = {"PATH=/usr/bin:/bin",
                         std::string(kEnvJob) + "=" + job,
                         std::string(kEnvHost) + "=" + host,
                         std::string(kEnvAgentDirectory) + "=" + directory};
  return Spawn(options).value();
}

void End(SpawnedProcess& process) {
  Signal(process.pidfd, SIGKILL);
  AwaitProcessEnd(process.pidfd);
  CHECK(Reap(process.pid).ok());
}

class RemoteAgent {
 public:
  RemoteAgent() {
    options.argv = {AgentProgram()};
    options.environment = {"TMPDIR=" + folder.Path(""), "PATH=/usr/bin:/bin"};
    bootstrap.set_host(kHost);
    bootstrap.set_job_id(RandomHex(8));
    bootstrap.set_secret("s3cret");
    bootstrap.add_driver()->set_literal(kNobody);
    bootstrap.set_log_level("INFO");
    bootstrap.set_protocol(kProtocolVersion);
    bootstrap.set_remote(true);
    bootstrap.set_farewell(kFarewell);
  }
  ~RemoteAgent() {
    if (process.pid > 0 && !reaped_) {
      Signal(process.pidfd, SIGKILL);  // The agent proper notices, and ends.
      AwaitExit();
    }
  }

  /// Until the agent proper is there.
  void Start() {
    Pipe in = MakePipe().value();
    Pipe out_pipe = MakePipe().value();
    Pipe err_pipe = MakePipe().value();
    options.stdin_fd = in.read.get();
    options.stdout_fd = out_pipe.write.get();
    options.stderr_fd = err_pipe.write.get();
    process = Spawn(options).value();
    input = std::move(in.write);
    out = std::move(out_pipe.read);
    err = std::move(err_pipe.read);
    const std::string bytes = EncodeBootstrap(bootstrap);
    REQUIRE(::write(input.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    REQUIRE(Await([this] { return FindProper(); }));
    proper = OpenPidfd(proper_pid);
    REQUIRE(proper.valid());
  }
  int AwaitExit() {
    if (!AwaitProcessEnd(process.pidfd)) {
      return -1;
    }
    reaped_ = true;
    const Result<ExitStatus> status = Reap(process.pid);
    return status.ok() ? status.value().code : -1;
  }

  TemporaryFolder folder;
  SpawnOptions options;
  v1::AgentBootstrap bootstrap;
  SpawnedProcess process;
  pid_t proper_pid = 0;  // Only to look at; signals go through `proper`.
  UniqueFd proper;
  UniqueFd input;
  UniqueFd out;
  UniqueFd err;

 private:
  // The child that has made its own group, which is the first that it does.
  bool FindProper() {
    for (const ProcessEntry& entry : ListProcesses()) {
      if (entry.parent == process.pid && entry.group == entry.pid) {
        proper_pid = entry.pid;
      }
    }
    return proper_pid != 0;
  }

  bool reaped_ = false;
};

TEST_CASE("remote agent goes on when its remote shell hangs up and takes no output any more") {
  RemoteAgent agent;
  agent.Start();
  agent.out.Reset();
  agent.err.Reset();
  for (const int signal : {SIGHUP, SIGPIPE, SIGINT}) {
    Signal(agent.process.pidfd, signal);
    Signal(agent.proper, signal);
  }
  CHECK_FALSE(EndsInAWhile(agent.process.pidfd));
  CHECK_FALSE(EndsInAWhile(agent.proper));
  Signal(agent.proper, SIGKILL);
  CHECK(agent.AwaitExit() == 137);
}

TEST_CASE("remote agent ends with its remote shell as long as no driver has taken it in") {
  RemoteAgent agent;
  agent.Start();
  agent.input.Reset();
  CHECK(agent.AwaitExit() == 1);
  CHECK(ReadAll(agent.out) == std::string(kFarewell) + "\n");
}

TEST_CASE("remote agent leaves no process alone in the remote shell's session or group") {
  RemoteAgent agent;
  agent.options.new_group = false;
  agent.Start();
  CHECK(::getsid(agent.process.pid) == agent.process.pid);
  CHECK(::getpgid(agent.proper_pid) == agent.proper_pid);
}

TEST_CASE("remote agent's reaper is cleared up after when its group is killed") {
  RemoteAgent agent;  // Here it leads the group that was made for it.
  agent.Start();
  REQUIRE(agent.process.pid > 1);
  ::kill(-agent.process.pid, SIGKILL);
  CHECK(agent.AwaitExit() == 137);
  CHECK(AwaitProcessEnd(agent.proper));
}

TEST_CASE("remote agent ends on SIGTERM as long as it has no driver") {
  RemoteAgent agent;
  agent.Start();
  Signal(agent.process.pidfd, SIGTERM);
  CHECK(agent.AwaitExit() == 0);
}

TEST_CASE("remote agent's reaper says farewell once all is gone") {
  RemoteAgent agent;
  agent.Start();
  Signal(agent.proper, SIGKILL);
  CHECK(agent.AwaitExit() == 137);
  CHECK(ReadAll(agent.out) == std::string(kFarewell) + "\n");
}

TEST_CASE("remote agent's reaper does not hang on a shell that takes no farewell") {
  RemoteAgent agent;
  agent.Start();
  // The pipe is full: what this process writes into the agent's own end, it has to wait for.
  const std::string path = "/proc/" + std::to_string(agent.process.pid) + "/fd/1";
  const UniqueFd full(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  const std::string filling(4096, 'x');
  while (::write(full.get(), filling.data(), filling.size()) > 0) {
  }
  Signal(agent.proper, SIGKILL);
  CHECK(agent.AwaitExit() == 137);
}

TEST_CASE("remote agent clears up what an earlier one of its job and host has left") {
  RemoteAgent agent;
  const std::string& job = agent.bootstrap.job_id();
  SpawnedProcess left = MarkedProcess(job, kHost, "/tmp/earlier");
  SpawnedProcess other_host = MarkedProcess(job, "host-b", "/tmp/other");
  SpawnedProcess other_job = MarkedProcess(job + "1", kHost, "/tmp/other");
  agent.Start();  // The agent proper is forked after that.
  CHECK(AwaitProcessEnd(left.pidfd));
  CHECK_FALSE(EndsInAWhile(other_host.pidfd));
  CHECK_FALSE(EndsInAWhile(other_job.pidfd));
  for (SpawnedProcess* process : {&left, &other_host, &other_job}) {
    End(*process);
  }
}

TEST_CASE("remote agent that ends late spares the workers of the next one") {
  RemoteAgent agent;
  agent.Start();
  SpawnedProcess next = MarkedProcess(agent.bootstrap.job_id(), kHost, "/tmp/next");
  Signal(agent.proper, SIGKILL);
  CHECK(agent.AwaitExit() == 137);
  CHECK_FALSE(EndsInAWhile(next.pidfd));
  End(next);
}

TEST_CASE("remote agent that is cut off at its reaper spares the workers of the next one") {
  RemoteAgent agent;
  agent.Start();
  SpawnedProcess next = MarkedProcess(agent.bootstrap.job_id(), kHost, "/tmp/next");
  Signal(agent.process.pidfd, SIGKILL);
  CHECK(AwaitProcessEnd(agent.proper));
  CHECK_FALSE(EndsInAWhile(next.pidfd));
  End(next);
}

TEST_CASE("agent keeps no descriptor that a remote shell has passed on") {
  RemoteAgent agent;
  Pipe passed = MakePipe().value();
  agent.options.inherited = {passed.write.get()};
  agent.Start();
  passed.write.Reset();
  pollfd entry{passed.read.get(), POLLIN, 0};
  REQUIRE(::poll(&entry, 1, 20'000) == 1);
  CHECK((entry.revents & POLLHUP) != 0);
  CHECK_FALSE(EndsInAWhile(agent.process.pidfd));
}

// What a remote shell that keeps its input to itself gives.
TEST_CASE("agent without its bootstrap names the remote shell as the one to look at") {
  Pipe err = MakePipe().value();
  SpawnOptions options;
  options.argv = {AgentProgram()};
  options.stderr_fd = err.write.get();
  const SpawnedProcess process = Spawn(options).value();
  err.write.Reset();
  CHECK_THAT(ReadAll(err.read), Contains("muster: agent: ") && Contains("--rsh-agent"));
  REQUIRE(AwaitProcessEnd(process.pidfd));
  CHECK(Reap(process.pid).value().code == 2);
}

// ---------------------------------------------------------------- --join

class JoinedAgent {
 public:
  explicit JoinedAgent(int timeout_ms, const std::string& secret = std::string(32, 's')) {
    const std::string file = folder_.Write("secret", secret, 0600);
    Pipe err_pipe = MakePipe().value();
    SpawnOptions options;
    options.argv = {AgentProgram(), kNobody, "host-j", file, std::to_string(timeout_ms)};
    options.environment = {"TMPDIR=" + folder_.Path("")};
    options.stderr_fd = err_pipe.write.get();
    process = Spawn(options).value();
    err = std::move(err_pipe.read);
  }
  ~JoinedAgent() {
    if (!reaped_) {
      Signal(process.pidfd, SIGKILL);
      AwaitExit();
    }
  }

  bool AwaitProper() {
    return Await([this] {
      const std::vector<ProcessEntry> all = ListProcesses();
      return std::any_of(all.begin(), all.end(), [this](const ProcessEntry& entry) {
        return entry.parent == process.pid && entry.group == entry.pid;
      });
    });
  }
  int AwaitExit() {
    reaped_ = AwaitProcessEnd(process.pidfd);
    return reaped_ ? Reap(process.pid).value().code : -1;
  }

  SpawnedProcess process;
  UniqueFd err;

 private:
  TemporaryFolder folder_;
  bool reaped_ = false;
};

TEST_CASE("joined agent ends with 75 when no driver answers in time") {
  JoinedAgent agent(100);
  CHECK(agent.AwaitExit() == kExitNoDriver);
}

TEST_CASE("joined agent ends with 2 and a remedy when its secret will not do") {
  JoinedAgent agent(60'000, "short");
  CHECK(agent.AwaitExit() == 2);
  CHECK_THAT(ReadAll(agent.err), Contains("fewer than 16") && Contains("openssl rand"));
}

TEST_CASE("joined agent that looks for a driver ends on SIGTERM, Ctrl-C and a closed terminal") {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    JoinedAgent agent(60'000);
    REQUIRE(agent.AwaitProper());
    Signal(agent.process.pidfd, signal);
    CHECK(agent.AwaitExit() == 0);
  }
}

}  // namespace
}  // namespace muster::launcher
