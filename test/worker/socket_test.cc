#include "worker/socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

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

// A reader that is slow stands for one that is cut off: what the sender's kernel still holds is
// what matters.
TEST_CASE("a socket takes back what the peer has not received, if it is told to") {
  const bool discard = GENERATE(true, false);
  PrivateFd listener = ListenOnLoopback().value();
  PrivateFd near = StartConnect(ParseAddress(LocalAddress(listener.get()).value()).value()).value();
  const PrivateFd far = Accept(listener.get()).value();
  const std::string block(1 << 20, 'x');
  size_t sent = 0;
  for (ssize_t count = 0; count >= 0 && sent < (64u << 20);) {
    pollfd writable{near.get(), POLLOUT, 0};
    if (::poll(&writable, 1, 200) == 0) {
      break;  // The buffers of both sides are full.
    }
    count = WriteSome(near.get(), block.data(), block.size());
    sent += count > 0 ? static_cast<size_t>(count) : 0;
  }
  REQUIRE(sent > 0);
  if (discard) {
    DiscardUnreceived(near.get());
  }
  near.Reset();
  size_t received = 0;
  std::string into(1 << 20, ' ');
  for (;;) {
    pollfd readable{far.get(), POLLIN, 0};
    REQUIRE(::poll(&readable, 1, 10'000) == 1);
    const ssize_t count = ::recv(far.get(), into.data(), into.size(), 0);
    if (count <= 0) {
      CHECK(count == (discard ? -1 : 0));
      break;
    }
    received += static_cast<size_t>(count);
  }
  if (discard) {
    CHECK(received < sent);
  } else {
    CHECK(received == sent);
  }
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
