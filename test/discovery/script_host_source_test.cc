#include "discovery/script_host_source.h"

#include <poll.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <thread>

#include "test/support/temporary_folder.h"

namespace muster::discovery {
namespace {

using Catch::Matchers::Contains;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

// A source as most tests want it.
ScriptHostSource Source(const std::string& script,
                        Duration timeout = seconds(30),
                        DefaultSlots default_slots = {}) {
  return ScriptHostSource(
      script, default_slots, timeout, {"PATH=/usr/bin:/bin", "LIST=from_env:3"});
}

std::string Error(const std::string& script, Duration timeout = seconds(30)) {
  ScriptHostSource source = Source(script, timeout);
  const Result<HostList> list = source.Poll();
  REQUIRE_FALSE(list.ok());
  INFO(list.status().message());
  CHECK(list.status().message().find('\n') == std::string::npos);
  CHECK(list.status().message().size() < 1000);
  return list.status().message();
}

using Hosts = std::vector<ListedHost>;

TEST_CASE("script source gives what the command printed, run by a shell") {
  ScriptHostSource source = Source("echo a:2; echo \"$LIST\"; echo noise >&2");
  CHECK(source.Poll().value().hosts == Hosts{{HostId{"a"}, 2}, {HostId{"from_env"}, 3}});
}

TEST_CASE("script source takes empty output as no hosts") {
  CHECK(Source("true").Poll().value().hosts.empty());
  CHECK(Source("printf '  \\n\\n'").Poll().value().hosts.empty());
}

TEST_CASE("script source uses --slots-per-host") {
  CHECK(Source("echo a", seconds(30), 3).Poll().value().hosts == Hosts{{HostId{"a"}, 3}});
}

TEST_CASE("script source runs the path afresh, so a symlink may be swapped") {
  const TemporaryFolder folder;
  folder.Write("v1", "#!/bin/sh\necho a:1\n", 0555);
  folder.Write("v2", "#!/bin/sh\necho a:1\necho b:1\n", 0555);
  const std::string link = folder.Path("discover.sh");
  REQUIRE(::symlink("v1", link.c_str()) == 0);
  ScriptHostSource source = Source(link);
  CHECK(source.Poll().value().hosts.size() == 1);
  REQUIRE(::unlink(link.c_str()) == 0);
  REQUIRE(::symlink("v2", link.c_str()) == 0);
  CHECK(source.Poll().value().hosts.size() == 2);
}

TEST_CASE("script source names script, code and stderr of a failure, and goes on") {
  const TemporaryFolder folder;
  const std::string path = folder.Write("d.sh", "#!/bin/sh\ncat \"$0.list\" || exit 7\n", 0755);
  ScriptHostSource source = Source(path);
  const Result<HostList> failed = source.Poll();
  REQUIRE_FALSE(failed.ok());
  CHECK_THAT(failed.status().message(), Contains(path) && Contains("exit code 7"));
  CHECK_THAT(failed.status().message(), Contains("No such file"));
  folder.Write("d.sh.list", "a:1\n");
  CHECK(source.Poll().ok());
}

TEST_CASE("script source says permission when the script is not executable") {
  const TemporaryFolder folder;
  const std::string path = folder.Write("d.sh", "#!/bin/sh\necho a:1\n", 0444);
  CHECK_THAT(Error(path), Contains(path) && Contains("permission") && Contains("126"));
}

TEST_CASE("script source says that there is no such script") {
  CHECK_THAT(Error("/nowhere/d.sh"), Contains("/nowhere/d.sh") && Contains("no such file"));
}

TEST_CASE("script source reports a signal") {
  CHECK_THAT(Error("kill -SEGV $$"), Contains("signal 11"));
}

TEST_CASE("script source names the bad line") {
  CHECK_THAT(Error("echo a:1; echo localhost:abc"), Contains("line 2: 'localhost:abc'"));
}

TEST_CASE("script source shows the last words of a long error output") {
  CHECK_THAT(Error("i=0; while [ $i -lt 2000 ]; do echo traceback $i >&2; i=$((i+1)); done;"
                   "echo the reason >&2; exit 1"),
             Contains("the reason"));
}

TEST_CASE("script source bounds what it reads") {
  CHECK_THAT(Error("yes"), Contains("more than 1024 KiB"));
  CHECK_THAT(Error("yes >&2", milliseconds(200)), Contains("--discovery-timeout"));
  CHECK_THAT(Error("head -c 1000000 /dev/urandom"), Contains("cannot be used"));
}

TEST_CASE("script source kills the whole group of a script that is late") {
  const TemporaryFolder folder;
  const std::string pid_file = folder.Path("grandchild");
  const std::string message =
      Error("sleep 1000 & echo $! > " + pid_file + "; echo waiting >&2; wait", milliseconds(500));
  CHECK_THAT(message, Contains("0.5 s") && Contains("waiting"));
  const UniqueFd grandchild = OpenPidfd(std::stoi(folder.Read("grandchild")));
  if (grandchild.valid()) {  // Else it has been reaped already.
    pollfd ended{grandchild.get(), POLLIN, 0};
    CHECK(::poll(&ended, 1, 20'000) == 1);
  }
}

TEST_CASE("script source ends with the script, whatever it left in the background") {
  ScriptHostSource source = Source("echo a:1; sleep 1000 &");
  CHECK(source.Poll().value().hosts.size() == 1);  // Not after 1000 s.
}

TEST_CASE("script source stops at once when it is cancelled, and for good") {
  const TemporaryFolder folder;
  REQUIRE(::mkfifo(folder.Path("started").c_str(), 0600) == 0);
  ScriptHostSource source = Source("echo > " + folder.Path("started") + "; sleep 1000", hours(1));
  std::jthread canceller([&] {
    folder.Read("started");  // Returns when the script has begun.
    source.Cancel();
  });
  CHECK(source.Poll().status().code() == StatusCode::kAborted);
  CHECK(source.Poll().status().code() == StatusCode::kAborted);
}

}  // namespace
}  // namespace muster::discovery
