#include "launcher/chaos/hook.h"

#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <memory>

#include "launcher/chaos/run_chaos.h"
#include "test/support/temporary_folder.h"

namespace muster::launcher {
namespace {

constexpr Duration kLimit = std::chrono::seconds(30);
constexpr int kLimitMilliseconds = 30'000;

HookAnswer Call(const std::string& program, const std::string& word, Duration limit = kLimit) {
  Loop loop;
  HookAnswer got;
  const Hook hook(
      loop,
      program,
      word,
      {"PATH=/usr/bin:/bin", "NAME=value"},
      [&](const HookAnswer& answer) {
        got = answer;
        loop.Stop();
      },
      limit);
  loop.Run();
  return got;
}

TEST_CASE("a hook's output names a host and holds a note") {
  const HookAnswer answer = ReadHookOutput("first\nhost nodea\n\nsecond\n");
  CHECK(answer.host == "nodea");
  CHECK(answer.note == "first; second");
  CHECK(ReadHookOutput("").host.empty());
  CHECK(ReadHookOutput(std::string(500, 'x')).note.size() == 200);
}

TEST_CASE("a hook is called with its word and its environment") {
  const TemporaryFolder folder;
  const std::string program = folder.Write("hook", "#!/bin/sh\necho host $1\necho $NAME\n", 0700);
  const HookAnswer answer = Call(program, "begin");
  CHECK(answer.host == "begin");
  CHECK(answer.note == "value");
  CHECK(answer.error.empty());
}

TEST_CASE("a hook finds what it is called for, once, and is marked as no worker") {
  const std::vector<std::string> environment =
      HookEnvironment({"PATH=/bin",
                       "MUSTER_CHAOS_DRAW=9",
                       "MUSTER_JOB=other",
                       "MUSTER_INCARNATION=4",
                       "MUSTER_WORKER_KEY=key",
                       "MUSTER_INCIDENT_DIR=/d"},
                      {"ab12", 7, 3'000'005, std::chrono::milliseconds(1500)});
  CHECK(environment == std::vector<std::string>{"PATH=/bin",
                                                "MUSTER_INCIDENT_DIR=/d",
                                                "MUSTER_CHAOS_JOB=ab12",
                                                "MUSTER_CHAOS_NUMBER=7",
                                                "MUSTER_CHAOS_DRAW=5",
                                                "MUSTER_CHAOS_LASTS_MS=1500"});
}

TEST_CASE("a hook that fails is told with its code, one that is not there with the reason") {
  const TemporaryFolder folder;
  CHECK(Call(folder.Write("code", "#!/bin/sh\nexit 3\n", 0700), "end").error ==
        "it exited with code 3");
  CHECK(Call(folder.Write("signal", "#!/bin/sh\nkill -9 $$\n", 0700), "end").error ==
        "it was killed by signal 9");
  CHECK(Call(folder.Path("none"), "end").error.find("none") != std::string::npos);
}

TEST_CASE("a hook that takes too long is killed") {
  const TemporaryFolder folder;
  CHECK(Call(folder.Write("slow", "#!/bin/sh\nexec sleep 600\n", 0700), "begin", Duration::zero())
            .error == "it was killed by signal 9");
}

TEST_CASE("a hook that cannot be killed is given up") {
  const TemporaryFolder folder;
  // It is in the group of its parent, so that none of its own is there to be killed.
  const std::string program = folder.Write("stubborn",
                                           "#!/usr/bin/perl\n"
                                           "setpgrp(0, getpgrp(getppid()));\n"
                                           "$| = 1; print \"$$\\n\"; sleep 600;\n",
                                           0700);
  const HookAnswer answer = Call(program, "begin", std::chrono::seconds(2));
  ::kill(std::stoi(answer.note), SIGKILL);
  CHECK(answer.error == "it does not end, though it was killed");
}

TEST_CASE("a hook that prints without end costs no memory, and what it leaves is ended") {
  const TemporaryFolder folder;
  const HookAnswer answer =
      Call(folder.Write("yes", "#!/bin/sh\nsleep 600 &\necho $!\nyes | head -c 9000000\n", 0700),
           "begin");
  CHECK(answer.error.empty());
  CHECK(answer.note.size() == 200);
  const UniqueFd left = OpenPidfd(std::stoi(answer.note));
  pollfd entry{left.get(), POLLIN, 0};
  CHECK((!left.valid() || ::poll(&entry, 1, kLimitMilliseconds) == 1));
}

TEST_CASE("a hook that nobody waits for any more is killed and calls nobody") {
  const TemporaryFolder folder;
  const std::string program = folder.Write("hook", "#!/bin/sh\nexec sleep 600\n", 0700);
  Loop loop;
  bool called = false;
  auto hook = std::make_unique<Hook>(loop,
                                     program,
                                     "begin",
                                     std::vector<std::string>{"PATH=/usr/bin:/bin"},
                                     [&called](const HookAnswer&) { called = true; });
  hook.reset();
  loop.Post([&loop] { loop.Stop(); });
  loop.Run();
  CHECK_FALSE(called);
}

TEST_CASE("the hooks of a folder are its programs, by name") {
  const TemporaryFolder folder;
  folder.Write("slow", "", 0700);
  folder.Write("cut", "", 0700);
  folder.Write("notes", "", 0600);
  folder.Write("cut.bak", "", 0700);
  REQUIRE(::symlink("loop", folder.Path("loop").c_str()) == 0);
  const Result<std::vector<std::string>> hooks = ListHooks(folder.Path(""));
  REQUIRE(hooks.ok());
  CHECK(hooks.value() == std::vector<std::string>{"cut", "slow"});
  CHECK_FALSE(ListHooks(folder.Path("none")).ok());
}

TEST_CASE("hooks that somebody else could change are refused") {
  const TemporaryFolder folder;
  const std::string hook = folder.Write("cut", "", 0700);
  REQUIRE(ListHooks(folder.Path("")).ok());
  REQUIRE(::chmod(hook.c_str(), 0720) == 0);
  CHECK(ListHooks(folder.Path("")).status().message().find(hook) == 0);
  REQUIRE(::chmod(hook.c_str(), 0700) == 0);
  REQUIRE(::chmod(folder.Path("").c_str(), 0702) == 0);
  CHECK_FALSE(ListHooks(folder.Path("")).ok());
}

TEST_CASE("without a choice every built-in kind and every hook comes") {
  const auto kinds = KindsToRun({}, {"cut"});
  REQUIRE(kinds.ok());
  CHECK(kinds.value().size() == BuiltInChaos().size() + 1);
  CHECK(kinds.value().back() == ChaosKind{"cut", 1});
}

TEST_CASE("a choice stands if all of it is there") {
  const std::vector<ChaosKind> asked{{"cut", 4}, {"kill", 1}};
  CHECK(KindsToRun(asked, {"cut", "slow"}).value() == asked);
  CHECK(KindsToRun(asked, {"slow"}).status().message().find("cut is neither") == 0);
  CHECK_FALSE(KindsToRun({}, {"kill"}).ok());
}

}  // namespace
}  // namespace muster::launcher
