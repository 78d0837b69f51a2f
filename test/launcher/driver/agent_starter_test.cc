#include "launcher/driver/agent_starter.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <optional>
#include <set>
#include <sstream>

#include "launcher/agent/bootstrap.h"
#include "test/support/loop_awaiter.h"
#include "test/support/temporary_folder.h"

namespace muster::launcher {
namespace {

using Catch::Matchers::Contains;
using std::chrono::hours;
using std::chrono::milliseconds;

using Place = AgentStarter::Place;

const HostId kHost{"host-a"};
constexpr const char* kSecret = "the job's secret, never to be seen";

// Reads a bootstrap, as an agent does, and keeps its body. `farewell` is the last of its fields.
constexpr const char* kReadBootstrap =
    "size=$(dd bs=1 count=4 2>/dev/null | od -An -tu4 | tr -d ' ')\n"
    "dd bs=4096 iflag=fullblock,count_bytes count=$size >$FOLDER/body 2>/dev/null\n"
    "farewell=$(tail -c 32 $FOLDER/body)\n";

// A starter whose remote shell is a script of the test, which runs the command here. All scripts
// find the test's folder in $FOLDER.
class Fixture {
 public:
  explicit Fixture(Duration start_timeout = hours(1), bool this_machine = false)
      : awaiter_(loop_), start_timeout_(start_timeout), this_machine_(this_machine) {
    ::signal(SIGPIPE, SIG_IGN);
    options.rsh_agent = Script("shell",
                               "for word in \"$@\"; do printf '%s\\n' \"$word\"; done "
                               ">>$FOLDER/argv\n"
                               "shift; exec sh -c \"$*\"\n");
  }

  std::string Script(const std::string& name, const std::string& text) {
    return folder.Write(name, "#!/bin/sh\nFOLDER=" + folder.Path("") + "\n" + text, 0755);
  }
  /// What runs in the place of `muster agent`.
  void Agent(const std::string& text) { options.remote_muster = Script("it's an agent", text); }

  AgentStarter& starter() {
    if (!starter_) {
      starter_.emplace(
          loop_,
          options,
          start_timeout_,
          AgentStarter::Callbacks{
              [this](const HostId& host, Place place) { return Bootstrap(host, place); },
              [this](const HostId& host, const AgentStarter::Ended& end) {
                ended[host] = end;
                awaiter_.Changed();
              },
              [this](const HostId& host, const std::string& message) {
                failed[host] = message;
                awaiter_.Changed();
              }},
          [this](const std::string&) { return this_machine_; });
    }
    return *starter_;
  }
  void Destroy() { starter_.reset(); }

  bool Await(const std::function<bool()>& condition) { return awaiter_.Await(condition); }
  AgentStarter::Ended AwaitEnd(const HostId& host = kHost) {
    REQUIRE(Await([&] { return ended.contains(host); }));
    return ended.at(host);
  }
  std::string AwaitFailure(const HostId& host = kHost) {
    REQUIRE(Await([&] { return failed.contains(host); }));
    return failed.at(host);
  }
  AgentStarter::Ended RunToTheEnd() {
    starter().Start(kHost);
    return AwaitEnd();
  }

  TemporaryFolder folder;
  RemoteShellOptions options;
  size_t padding = 0;  // Makes bootstraps larger by so much.
  std::optional<Status> refusal;
  std::vector<std::pair<HostId, Place>> asked;
  std::map<HostId, AgentStarter::Ended> ended;
  std::map<HostId, std::string> failed;

 private:
  Result<v1::AgentBootstrap> Bootstrap(const HostId& host, Place place) {
    asked.emplace_back(host, place);
    awaiter_.Changed();
    if (refusal) {
      return *refusal;
    }
    v1::AgentBootstrap bootstrap;
    bootstrap.set_host(host.value);
    bootstrap.set_job_id(std::string(padding, 'x'));
    bootstrap.set_secret(kSecret);
    return bootstrap;
  }

  Loop loop_;
  LoopAwaiter awaiter_;
  const Duration start_timeout_;
  const bool this_machine_;
  std::optional<AgentStarter> starter_;
};

// A named pipe that scripts hold open: its hang-up tells that all of them are gone.
class Witness {
 public:
  explicit Witness(const TemporaryFolder& folder) {
    const std::string path = folder.Path("witness");
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    fd_ = UniqueFd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  }
  bool AwaitByte() { return AwaitEvent(POLLIN); }
  bool AwaitNobody() { return AwaitEvent(POLLHUP); }

 private:
  bool AwaitEvent(short event) {
    pollfd entry{fd_.get(), event, 0};
    return ::poll(&entry, 1, 20'000) == 1 && (entry.revents & event) != 0;
  }
  UniqueFd fd_;
};

// Hangs, with a child that outlives a mere kill of the script.
constexpr const char* kHang =
    "exec 9>$FOLDER/witness\n"
    "(trap '' TERM HUP; sleep 1000) &\n"
    "echo >&9\n"
    "wait\n";

TEST_CASE("agent starter hands the agent's bootstrap to a remote shell's input") {
  Fixture fixture;
  fixture.Agent(std::string(kReadBootstrap) + "echo $farewell; exit 7\n");
  const AgentStarter::Ended ended = fixture.RunToTheEnd();
  CHECK(ended.place == Place::kRemote);
  CHECK(ended.exit.code == 7);
  CHECK(ended.farewell);
  CHECK_FALSE(ended.late);
  CHECK_FALSE(fixture.starter().Has(kHost));
  v1::AgentBootstrap got;
  REQUIRE(got.ParseFromString(fixture.folder.Read("body")));
  CHECK(got.host() == kHost.value);
  CHECK(got.secret() == kSecret);
  CHECK(got.remote());
  CHECK(got.farewell().size() == 32);
}

TEST_CASE("agent starter gives a remote shell the host and one command, nothing else") {
  Fixture fixture;
  fixture.Agent("exit 0\n");
  fixture.RunToTheEnd();
  CHECK(fixture.folder.Read("argv") ==
        "host-a\n'" + fixture.folder.Path("it'\\''s an agent") + "' agent\n");
}

TEST_CASE("agent starter hands over a bootstrap that does not fit into a pipe") {
  Fixture fixture;
  fixture.padding = 300'000;
  fixture.Agent(std::string(kReadBootstrap) + "echo $farewell\n");
  CHECK(fixture.RunToTheEnd().farewell);
  v1::AgentBootstrap got;
  REQUIRE(got.ParseFromString(fixture.folder.Read("body")));
  CHECK(got.job_id().size() == fixture.padding);
}

TEST_CASE("agent starter takes no other line for a farewell") {
  Fixture fixture;
  fixture.Agent(std::string(kReadBootstrap) +
                "echo \"x$farewell\"; echo \"$farewell and more\"; echo $farewell >&2\n");
  CHECK_FALSE(fixture.RunToTheEnd().farewell);
  Fixture silent;
  silent.Agent("exit 0\n");
  CHECK_FALSE(silent.RunToTheEnd().farewell);
}

TEST_CASE("agent starter keeps what a remote shell has said at last") {
  Fixture fixture;
  fixture.Agent("echo out; echo first >&2; printf 'no route\\r\\n\\033[2Jto host' >&2; exit 255\n");
  const AgentStarter::Ended ended = fixture.RunToTheEnd();
  CHECK(ended.last_words == "first; no route; ?[2Jto host");
  CHECK(AgentStarter::Describe(ended) ==
        "its remote shell exited with code 255: first; no route; ?[2Jto host");
}

TEST_CASE("agent starter says what to do when muster is not found over there") {
  Fixture fixture;
  fixture.options.remote_muster = "/nowhere/muster";
  const AgentStarter::Ended ended = fixture.RunToTheEnd();
  CHECK(ended.exit.code == 127);
  CHECK_THAT(AgentStarter::Describe(ended), Contains("/nowhere/muster: not found"));
  CHECK_THAT(AgentStarter::Describe(ended), Contains("--remote-muster PATH"));
}

TEST_CASE("agent starter kills a remote shell that is late, with all that it has started") {
  Fixture fixture(milliseconds(200));
  Witness witness(fixture.folder);
  fixture.Agent(kHang);
  const AgentStarter::Ended ended = fixture.RunToTheEnd();
  CHECK(ended.late);
  CHECK(ended.exit.signal == SIGKILL);
  CHECK(witness.AwaitNobody());
  CHECK_THAT(AgentStarter::Describe(ended), Contains("within the start timeout"));
}

TEST_CASE("agent starter leaves an agent alone that has attached in time") {
  Fixture fixture(milliseconds(200));
  fixture.Agent("cat >/dev/null; exit 3\n");
  fixture.starter().Start(kHost);
  REQUIRE(fixture.Await([&] { return !fixture.asked.empty(); }));
  fixture.starter().Attached(kHost);
  // Another one that is late shows that the time is over.
  fixture.starter().Start({"host-b"});
  CHECK(fixture.AwaitEnd({"host-b"}).late);
  CHECK(fixture.starter().Has(kHost));
  fixture.starter().EndInput(kHost);
  const AgentStarter::Ended ended = fixture.AwaitEnd();
  CHECK(ended.exit.code == 3);
  CHECK_FALSE(ended.late);
}

TEST_CASE("agent starter kills a remote shell with all that it has started") {
  Fixture fixture;
  Witness witness(fixture.folder);
  fixture.Agent(kHang);
  fixture.starter().Start(kHost);
  REQUIRE(fixture.Await([&] { return !fixture.asked.empty(); }));
  REQUIRE(witness.AwaitByte());
  fixture.starter().Kill(kHost);
  CHECK(fixture.AwaitEnd().exit.signal == SIGKILL);
  CHECK(witness.AwaitNobody());
}

TEST_CASE("agent starter takes what a remote shell has left with it when it ends") {
  Fixture fixture;
  Witness witness(fixture.folder);
  fixture.Agent("exec 9>$FOLDER/witness; (trap '' TERM HUP; sleep 1000) & exit 0\n");
  CHECK(fixture.RunToTheEnd().exit.code == 0);
  CHECK(witness.AwaitNobody());
}

TEST_CASE("agent starter that is gone leaves no remote shell") {
  Fixture fixture;
  Witness witness(fixture.folder);
  fixture.Agent(kHang);
  fixture.starter().Start(kHost);
  fixture.starter().Start({"host-b"});
  REQUIRE(fixture.Await([&] { return fixture.asked.size() == 2; }));
  REQUIRE(witness.AwaitByte());
  fixture.Destroy();
  CHECK(witness.AwaitNobody());
  CHECK(fixture.ended.empty());
}

TEST_CASE(
    "agent starter whose process is killed leaves no remote shell, nor what that has started") {
  Fixture fixture;
  Witness witness(fixture.folder);
  fixture.Agent(kHang);
  Pipe started = MakePipe().value();
  const pid_t driver = ::fork();
  if (driver == 0) {
    fixture.starter().Start(kHost);
    fixture.Await([&] { return !fixture.asked.empty(); });
    started.write.Reset();
    fixture.Await([] { return false; });
    ::_exit(1);
  }
  REQUIRE(driver > 0);
  started.write.Reset();
  pollfd its_end{started.read.get(), POLLIN, 0};
  CHECK(::poll(&its_end, 1, 20'000) == 1);
  CHECK(witness.AwaitByte());
  ::kill(driver, SIGKILL);
  int status = 0;
  CHECK(::waitpid(driver, &status, 0) == driver);
  CHECK(witness.AwaitNobody());
}

// Case 62: without a terminal of its session ssh cannot ask on it.
TEST_CASE("agent starter gives a remote shell a session of its own, without a terminal") {
  Fixture fixture;
  fixture.options.rsh_agent = fixture.Script(
      "shell", "echo \"$$ $(cut -d' ' -f6,7 /proc/$$/stat) $SSH_ASKPASS_REQUIRE\" >$FOLDER/seen\n");
  fixture.RunToTheEnd();
  std::istringstream seen(fixture.folder.Read("seen"));
  int pid = 0;
  int session = 0;
  int terminal = -1;
  std::string askpass;
  seen >> pid >> session >> terminal >> askpass;
  CHECK(pid > 0);
  CHECK(session == pid);
  CHECK(terminal == 0);
  CHECK(askpass == "never");
}

TEST_CASE("agent starter starts a bounded number of remote shells at a time") {
  Fixture fixture;
  fixture.Agent("cat >/dev/null\n");
  const size_t hosts = kRemoteStartsMax + 3;
  for (size_t i = 0; i < hosts; ++i) {
    fixture.starter().Start({"host-" + std::to_string(i)});
  }
  REQUIRE(fixture.Await([&] { return fixture.asked.size() == kRemoteStartsMax; }));
  const auto started = [&](size_t index) { return fixture.asked.at(index).first; };
  // One attaches, one ends: each gives its place to one other.
  fixture.starter().Attached(started(0));
  fixture.starter().Attached(started(0));
  REQUIRE(fixture.Await([&] { return fixture.asked.size() == kRemoteStartsMax + 1; }));
  fixture.starter().Kill(started(0));  // Has no place any more.
  fixture.starter().Kill(started(1));
  fixture.AwaitEnd(started(0));
  fixture.AwaitEnd(started(1));
  CHECK(fixture.asked.size() == kRemoteStartsMax + 2);
  for (const auto& [host, ended] : fixture.ended) {
    UNSCOPED_INFO(host.value << " " << AgentStarter::Describe(ended));
  }
  CHECK(fixture.ended.size() == 2);
  for (size_t i = 0; i < hosts; ++i) {
    fixture.starter().Kill({"host-" + std::to_string(i)});
  }
  CHECK(fixture.Await([&] { return fixture.ended.size() == hosts; }));
  const auto farewells = std::count_if(fixture.ended.begin(),
                                       fixture.ended.end(),
                                       [](const auto& entry) { return entry.second.farewell; });
  CHECK(farewells == 1);  // The one whose turn never came: nothing of it is left, surely.
  CHECK(fixture.asked.size() == kRemoteStartsMax + 2);
}

TEST_CASE("agent starter that is told to end before the start starts nothing") {
  for (const bool kill : {false, true}) {
    Fixture fixture;
    fixture.starter().Start(kHost);
    CHECK(fixture.starter().Has(kHost));
    kill ? fixture.starter().Kill(kHost) : fixture.starter().EndInput(kHost);
    fixture.starter().EndInput(kHost);
    CHECK(fixture.ended.empty());  // Never from within a call.
    const AgentStarter::Ended ended = fixture.AwaitEnd();
    CHECK(ended.farewell);
    CHECK(fixture.asked.empty());
    // The same host again: what was said of the first start does not count.
    fixture.ended.clear();
    fixture.Agent("exit 0\n");
    fixture.starter().Start(kHost);
    fixture.AwaitEnd();
    CHECK(fixture.asked.size() == 1);
  }
}

TEST_CASE("agent starter tells when nothing can be started at all") {
  Fixture fixture;
  fixture.options.rsh_agent = "/nowhere/kubectl-sh";
  fixture.starter().Start(kHost);
  CHECK_THAT(fixture.AwaitFailure(),
             Contains("/nowhere/kubectl-sh: No such file") && Contains("--rsh-agent"));
  CHECK_FALSE(fixture.starter().Has(kHost));
  fixture.starter().Start({"-oProxyCommand=reboot"});
  CHECK_THAT(fixture.AwaitFailure({"-oProxyCommand=reboot"}), Contains("begins with '-'"));
  CHECK(fixture.ended.empty());
}

TEST_CASE("agent starter passes on why there is no bootstrap") {
  Fixture fixture;
  fixture.refusal = Status::Failed("no listener");
  fixture.starter().Start(kHost);
  CHECK(fixture.AwaitFailure() == "no listener");
  CHECK_FALSE(fixture.starter().Has(kHost));
}

TEST_CASE("agent starter needs no remote shell for this machine") {
  Fixture fixture(hours(1), true);
  // Here it is this test program that runs, which finds no test of this name and ends.
  const AgentStarter::Ended ended = fixture.RunToTheEnd();
  CHECK(ended.place == Place::kLocal);
  CHECK(fixture.asked == std::vector<std::pair<HostId, Place>>{{kHost, Place::kLocal}});
  CHECK(fixture.folder.Read("argv").empty());
}

}  // namespace
}  // namespace muster::launcher
