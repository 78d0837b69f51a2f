#include "worker/socket.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

namespace muster::worker {

TEST_CASE("private descriptors are closed in a forked child") {
  PrivateFd listener = ListenOnLoopback().value();
  const int number = listener.get();
  REQUIRE(::fcntl(number, F_GETFD) >= 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::_exit(::fcntl(number, F_GETFD) < 0 ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(::fcntl(number, F_GETFD) >= 0);
}

TEST_CASE("private descriptors of a parent leave a child's own descriptors alone") {
  PrivateFd listener = ListenOnLoopback().value();
  const pid_t pid = ::fork();
  if (pid == 0) {
    const int own = ::open("/dev/null", O_RDONLY);  // Likely takes the freed number.
    listener.Reset();
    ::_exit(::fcntl(own, F_GETFD) >= 0 ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a socket whose peer is gone breaks without a signal") {
  PrivateFd listener = ListenOnLoopback().value();
  PrivateFd near = StartConnect(ParseAddress(LocalAddress(listener.get()).value()).value()).value();
  { const PrivateFd far = Accept(listener.get()).value(); }
  ssize_t count = 0;
  for (int i = 0; i < 1000 && count >= 0; ++i) {
    count = WriteSome(near.get(), "x", 1);
  }
  CHECK(count == -1);
}

}  // namespace muster::worker
