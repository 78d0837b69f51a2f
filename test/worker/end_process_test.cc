#include "worker/end_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdio>
#include <string>
#include <thread>

#include "common/process.h"

namespace muster::worker {
namespace {

constexpr int kHangBoundMs = 20'000;
constexpr int kCode = 70;

// Of a child in which `before` runs first, with this as its standard error; -1: it hangs.
template <class Before>
int CodeOfChild(int standard_error, Before before) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(standard_error, STDERR_FILENO);
    before();
    EndThisProcess(kCode, "this worker was refused");
  }
  const UniqueFd ended = OpenPidfd(pid);
  pollfd entry{ended.get(), POLLIN, 0};
  const bool in_time = ::poll(&entry, 1, kHangBoundMs) == 1;
  if (!in_time) {
    ::kill(pid, SIGKILL);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  return in_time && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void FillStandardError() {
  ::fcntl(STDERR_FILENO, F_SETFL, O_NONBLOCK);
  const std::string block(4096, 'x');
  while (::write(STDERR_FILENO, block.data(), block.size()) > 0) {
  }
  ::fcntl(STDERR_FILENO, F_SETFL, 0);
}

TEST_CASE("a worker that ends itself says why") {
  Pipe pipe = MakePipe().value();
  CHECK(CodeOfChild(pipe.write.get(), [] {}) == kCode);
  std::string text(100, '\0');
  const ssize_t size = ::read(pipe.read.get(), text.data(), text.size());
  REQUIRE(size > 0);
  CHECK(text.substr(0, static_cast<size_t>(size)) == "muster: this worker was refused\n");
}

TEST_CASE("a worker ends itself though nobody takes its output") {
  const Pipe pipe = MakePipe().value();
  CHECK(CodeOfChild(pipe.write.get(), FillStandardError) == kCode);
}

// As the user's thread does that prints to a terminal which takes nothing.
TEST_CASE("a worker ends itself though another thread holds standard error") {
  const Pipe pipe = MakePipe().value();
  CHECK(CodeOfChild(pipe.write.get(), [] {
          std::atomic<bool> held{false};
          std::thread([&held] {
            ::flockfile(stderr);
            held = true;
            ::pause();
          }).detach();
          while (!held) {
            std::this_thread::yield();
          }
        }) == kCode);
}

TEST_CASE("a worker ends itself with its code though nobody is left to read") {
  Pipe pipe = MakePipe().value();
  pipe.read.Reset();
  CHECK(CodeOfChild(pipe.write.get(), [] {}) == kCode);
}

}  // namespace
}  // namespace muster::worker
