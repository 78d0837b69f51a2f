#include "discovery/group_guard.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <functional>

namespace muster::discovery {
namespace {

constexpr int kLimitMilliseconds = 20'000;

// A group of two processes; killed at the end whatever the test found.
class Sleeper {
 public:
  Sleeper() {
    const UniqueFd null_fd(::open("/dev/null", O_RDWR | O_CLOEXEC));
    SpawnOptions options;
    options.argv = {"/bin/sh", "-c", "sleep 1000 & sleep 1000"};
    options.environment = {"PATH=/usr/bin:/bin"};
    options.stdout_fd = null_fd.get();
    options.stderr_fd = null_fd.get();
    Result<SpawnedProcess> process = Spawn(options);
    REQUIRE(process.ok());
    process_ = std::move(process).value();
  }
  ~Sleeper() {
    ::kill(-process_.pid, SIGKILL);
    EndsSoon();
    [[maybe_unused]] const Result<ExitStatus> reaped = Reap(process_.pid);
  }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

  pid_t pid() const { return process_.pid; }
  bool EndsSoon() const {
    pollfd ended{process_.pidfd.get(), POLLIN, 0};
    return ::poll(&ended, 1, kLimitMilliseconds) == 1;
  }
  bool HasEnded() const {
    pollfd ended{process_.pidfd.get(), POLLIN, 0};
    return ::poll(&ended, 1, 0) == 1;
  }

 private:
  SpawnedProcess process_;
};

// Runs `use` with a guard in a child, which then dies without any clean-up.
void DieWithGuard(const std::function<void(GroupGuard&)>& use) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    GroupGuard guard;
    use(guard);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WTERMSIG(status) == SIGKILL);
}

TEST_CASE("group guard kills the group when its process is killed") {
  const Sleeper sleeper;
  DieWithGuard([&](GroupGuard& guard) { guard.Guard(sleeper.pid()); });
  CHECK(sleeper.EndsSoon());
}

TEST_CASE("group guard kills every group but those that it was told to forget") {
  const Sleeper forgotten;
  const Sleeper forgotten_last;
  const Sleeper guarded;
  const Sleeper guarded_too;
  DieWithGuard([&](GroupGuard& guard) {
    guard.Guard(forgotten.pid());
    guard.Guard(guarded.pid());
    guard.Forget(forgotten.pid());
    guard.Guard(guarded_too.pid());
    guard.Guard(forgotten_last.pid());
    guard.Forget(forgotten_last.pid());
    guard.Forget(forgotten.pid());  // Twice, which changes nothing.
  });
  CHECK(guarded.EndsSoon());
  CHECK(guarded_too.EndsSoon());  // The helper has reached the end of its list.
  CHECK_FALSE(forgotten.HasEnded());
  CHECK_FALSE(forgotten_last.HasEnded());
}

TEST_CASE("group guard that ends in the ordinary way kills nothing") {
  const Sleeper sleeper;
  {
    GroupGuard guard;
    guard.Guard(sleeper.pid());
  }
  CHECK_FALSE(sleeper.HasEnded());
}

}  // namespace
}  // namespace muster::discovery
