#include "common/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "common/open_files.h"

namespace muster {
namespace {

constexpr int kLimitMs = 20'000;

SpawnOptions Shell(const std::string& script) {
  SpawnOptions options;
  options.argv = {"sh", "-c", script};
  options.environment = CurrentEnvironment();
  return options;
}

// Waits on the pidfd, as the daemons do; the limit only ends a test that would hang.
ExitStatus WaitFor(const SpawnedProcess& process) {
  pollfd wait{process.pidfd.get(), POLLIN, 0};
  REQUIRE(::poll(&wait, 1, kLimitMs) == 1);
  return Reap(process.pid).value();
}

std::string ReadAll(UniqueFd& fd) {
  std::string all;
  char buffer[4096];
  for (;;) {
    pollfd wait{fd.get(), POLLIN, 0};
    REQUIRE(::poll(&wait, 1, kLimitMs) == 1);
    const ssize_t size = ::read(fd.get(), buffer, sizeof buffer);
    REQUIRE(size >= 0);
    if (size == 0) {
      return all;
    }
    all.append(buffer, static_cast<size_t>(size));
  }
}

// What a child that runs `options` says on its standard output.
std::string OutputOf(SpawnOptions options) {
  Pipe out = std::move(MakePipe()).value();
  options.stdout_fd = out.write.get();
  const SpawnedProcess process = std::move(Spawn(options)).value();
  out.write.Reset();
  std::string text = ReadAll(out.read);
  WaitFor(process);
  return text;
}

TEST_CASE("spawn tells the exit code and the signal of a child") {
  const SpawnedProcess exits = std::move(Spawn(Shell("exit 7"))).value();
  const ExitStatus seven = WaitFor(exits);
  CHECK(seven.code == 7);
  CHECK(seven.signal == 0);
  CHECK(Reap(exits.pid).status().code() == StatusCode::kFailed);

  const SpawnedProcess killed = std::move(Spawn(Shell("kill -9 $$"))).value();
  const ExitStatus nine = WaitFor(killed);
  CHECK(nine.code == 137);
  CHECK(nine.signal == SIGKILL);
}

TEST_CASE("reap says that a child still runs") {
  Pipe in = std::move(MakePipe()).value();
  SpawnOptions options = Shell("read line");
  options.stdin_fd = in.read.get();
  const SpawnedProcess process = std::move(Spawn(options)).value();
  CHECK(Reap(process.pid).status().code() == StatusCode::kUnavailable);
  in.write.Reset();
  WaitFor(process);
}

TEST_CASE("spawn fails with the reason when there is nothing to execute") {
  SpawnOptions missing = Shell("");
  missing.argv = {"/nonexistent/program"};
  const Result<SpawnedProcess> none = Spawn(missing);
  REQUIRE_FALSE(none.ok());
  CHECK(none.status().message().find("/nonexistent/program") != std::string::npos);
  CHECK(none.status().message().find("No such file") != std::string::npos);

  missing.argv = {"no-such-program-anywhere"};
  CHECK_FALSE(Spawn(missing).ok());
  missing.argv = {"/etc/passwd"};
  const Result<SpawnedProcess> mode = Spawn(missing);
  REQUIRE_FALSE(mode.ok());
  CHECK(mode.status().message().find("Permission denied") != std::string::npos);
}

TEST_CASE("spawn looks a program up in the PATH of the child's environment") {
  SpawnOptions options = Shell("");
  options.argv = {"sh", "-c", "echo found"};
  options.environment = {"PATH=/nonexistent:/bin:/usr/bin"};
  CHECK(OutputOf(options) == "found\n");
  options.environment = {"PATH=/nonexistent"};
  CHECK_FALSE(Spawn(options).ok());
}

TEST_CASE("spawn gives exactly the environment, directory and arguments asked for") {
  SpawnOptions options = Shell("env | sort; pwd; printf '%s' \"$1\"");
  options.argv.insert(options.argv.end(), {"zero", "a b\n'\"$HOME*"});
  options.environment = {"PATH=/bin:/usr/bin", "TEXT=two words\nand a line", "EMPTY="};
  options.directory = "/";
  const std::string text = OutputOf(options);
  CHECK(text.find("TEXT=two words\n") != std::string::npos);
  CHECK(text.find("EMPTY=\n") != std::string::npos);
  CHECK(text.find("HOME=") == std::string::npos);
  CHECK(text.find("\n/\n") != std::string::npos);
  CHECK(text.ends_with("a b\n'\"$HOME*"));
}

TEST_CASE("spawn reports a directory that does not exist") {
  SpawnOptions options = Shell("true");
  options.directory = "/nonexistent";
  CHECK_FALSE(Spawn(options).ok());
}

TEST_CASE("spawn lets only the named descriptors through") {
  // On purpose without close-on-exec: a library of ours may have opened it so. Far from the low
  // numbers, which `ls` takes for its own use.
  const UniqueFd leaky(::fcntl(0, F_DUPFD, 60));
  const UniqueFd wanted(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  SpawnOptions options = Shell("ls /proc/self/fd");
  options.inherited = {wanted.get()};
  const std::string text = "\n" + OutputOf(options);
  CHECK(text.find("\n" + std::to_string(wanted.get()) + "\n") != std::string::npos);
  CHECK(text.find("\n" + std::to_string(leaky.get()) + "\n") == std::string::npos);
}

TEST_CASE("spawn connects the three standard descriptors, input to /dev/null by default") {
  CHECK(OutputOf(Shell("readlink /proc/self/fd/0")) == "/dev/null\n");

  Pipe in = std::move(MakePipe()).value();
  Pipe out = std::move(MakePipe()).value();
  Pipe err = std::move(MakePipe()).value();
  REQUIRE(::write(in.write.get(), "hello\n", 6) == 6);
  SpawnOptions options = Shell("read x; echo out $x; echo err $x >&2");
  options.stdin_fd = in.read.get();
  options.stdout_fd = out.write.get();
  options.stderr_fd = err.write.get();
  const SpawnedProcess process = std::move(Spawn(options)).value();
  out.write.Reset();
  err.write.Reset();
  CHECK(ReadAll(out.read) == "out hello\n");
  CHECK(ReadAll(err.read) == "err hello\n");
  WaitFor(process);
}

TEST_CASE("spawn makes the child the leader of its own group unless told otherwise") {
  Pipe in = std::move(MakePipe()).value();
  SpawnOptions options = Shell("read line");
  options.stdin_fd = in.read.get();
  const SpawnedProcess leader = std::move(Spawn(options)).value();
  CHECK(::getpgid(leader.pid) == leader.pid);
  CHECK(GroupExists(leader.pid));
  options.new_group = false;
  const SpawnedProcess member = std::move(Spawn(options)).value();
  CHECK(::getpgid(member.pid) == ::getpgid(0));
  in.write.Reset();
  WaitFor(leader);
  WaitFor(member);
  CHECK_FALSE(GroupExists(leader.pid));
}

TEST_CASE("spawn makes the child the leader of its own session when asked") {
  SpawnOptions options = Shell("cut -d' ' -f1,5,6,7 /proc/$$/stat");
  const auto ids = [](const std::string& text) {
    std::istringstream stream(text);
    std::vector<int> all;
    for (int id = 0; stream >> id;) {
      all.push_back(id);
    }
    return all;
  };
  options.new_session = true;
  const std::vector<int> own = ids(OutputOf(options));
  REQUIRE(own.size() == 4);
  CHECK(own[1] == own[0]);
  CHECK(own[2] == own[0]);
  CHECK(own[3] == 0);  // No terminal.
  options.new_session = false;
  CHECK(ids(OutputOf(options)).at(2) == ::getsid(0));
}

TEST_CASE("a group exists while a grandchild lives, and not as zombies only") {
  Pipe hold = std::move(MakePipe()).value();
  Pipe ready = std::move(MakePipe()).value();
  SpawnOptions options = Shell("exec 3<&0; sh -c 'echo up; read line <&3' & exit 0");
  options.stdin_fd = hold.read.get();
  options.stdout_fd = ready.write.get();
  const SpawnedProcess process = std::move(Spawn(options)).value();
  pollfd up{ready.read.get(), POLLIN, 0};
  REQUIRE(::poll(&up, 1, kLimitMs) == 1);
  pollfd gone{process.pidfd.get(), POLLIN, 0};
  REQUIRE(::poll(&gone, 1, kLimitMs) == 1);
  CHECK(GroupExists(process.pid));  // The leader is a zombie, its child lives.
  ready.write.Reset();
  hold.write.Reset();
  CHECK(ReadAll(ready.read) == "up\n");  // Its end: the grandchild has closed it.
  CHECK(Reap(process.pid).value().code == 0);
}

TEST_CASE("spawn resets the child's signals, except that an ignored hangup stays ignored") {
  struct sigaction ignore {};
  struct sigaction old_hup {};
  struct sigaction old_term {};
  ignore.sa_handler = SIG_IGN;
  REQUIRE(::sigaction(SIGHUP, &ignore, &old_hup) == 0);
  REQUIRE(::sigaction(SIGTERM, &ignore, &old_term) == 0);
  const std::string ignored = OutputOf(Shell("grep -E 'SigIgn|SigBlk' /proc/self/status"));
  ::sigaction(SIGHUP, &old_hup, nullptr);
  ::sigaction(SIGTERM, &old_term, nullptr);
  CHECK(ignored.find("SigBlk:\t0000000000000000") != std::string::npos);
  CHECK(ignored.find("SigIgn:\t0000000000000001") != std::string::npos);
}

TEST_CASE("spawn limits the core dump to one byte when asked") {
  SpawnOptions options = Shell("grep 'core file size' /proc/self/limits");
  options.limit_core_dump = true;
  const std::string text = OutputOf(options);
  REQUIRE(text.find("core file size") != std::string::npos);
  CHECK(text.find(" 1 ") != std::string::npos);
}

TEST_CASE("an ended child is seen before it is reaped, and not after") {
  CHECK(EndedChild() == 0);
  const SpawnedProcess process = std::move(Spawn(Shell("exit 3"))).value();
  pollfd wait{process.pidfd.get(), POLLIN, 0};
  REQUIRE(::poll(&wait, 1, kLimitMs) == 1);
  CHECK(EndedChild() == process.pid);
  CHECK(EndedChild() == process.pid);
  CHECK(Reap(process.pid).value().code == 3);
  CHECK(EndedChild() == 0);
}

TEST_CASE("spawn sends the parent death signal when the thread that called it ends") {
  Pipe in = std::move(MakePipe()).value();
  SpawnOptions options = Shell("");
  options.argv = {"cat"};
  options.stdin_fd = in.read.get();
  options.parent_death_signal = SIGTERM;
  SpawnedProcess process;
  std::jthread([&] { process = std::move(Spawn(options)).value(); }).join();
  CHECK(WaitFor(process).signal == SIGTERM);
}

TEST_CASE("pipes close on exec at both ends") {
  const Pipe pipe = std::move(MakePipe()).value();
  CHECK((::fcntl(pipe.read.get(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK((::fcntl(pipe.write.get(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("a pidfd of a process that does not exist is not valid") {
  const SpawnedProcess process = std::move(Spawn(Shell("exit 0"))).value();
  WaitFor(process);
  CHECK_FALSE(OpenPidfd(process.pid).valid());
}

TEST_CASE("children get the limit of open files as it was before this process raised its own") {
  rlimit original{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &original) == 0);
  rlimit low = original;
  low.rlim_cur = 100;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &low) == 0);
  REQUIRE(RaiseOpenFiles().ok());
  rlimit raised{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &raised) == 0);
  CHECK(raised.rlim_cur == original.rlim_max);
  CHECK(WaitFor(std::move(Spawn(Shell("test $(ulimit -Sn) = 100"))).value()).code == 0);
  ::setrlimit(RLIMIT_NOFILE, &original);
}

TEST_CASE("the current environment lists every variable") {
  REQUIRE(::setenv("MUSTER_PROCESS_TEST", "here", 1) == 0);
  const std::vector<std::string> entries = CurrentEnvironment();
  CHECK(std::count(entries.begin(), entries.end(), "MUSTER_PROCESS_TEST=here") == 1);
  ::unsetenv("MUSTER_PROCESS_TEST");
}

}  // namespace
}  // namespace muster
