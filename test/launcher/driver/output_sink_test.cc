#include "launcher/driver/output_sink.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <string>

#include "common/process.h"
#include "test/support/temporary_folder.h"

namespace muster::launcher {
namespace {

const OutputSink::Wait kGiveUp = [](int) { return false; };

std::string ReadNow(int fd, size_t size = 1 << 20) {
  std::string text(size, '\0');
  text.resize(static_cast<size_t>(std::max<ssize_t>(::read(fd, text.data(), size), 0)));
  return text;
}

TEST_CASE("sink writes to a pipe and leaves the pipe's own flags alone") {
  const Pipe pipe = MakePipe().value();
  OutputSink sink(pipe.write.get());
  CHECK(sink.Write("one\ntwo\n", kGiveUp) == 0);
  CHECK(ReadNow(pipe.read.get()) == "one\ntwo\n");
  CHECK((::fcntl(pipe.write.get(), F_GETFL) & O_NONBLOCK) == 0);
}

TEST_CASE("sink waits for a full pipe instead of blocking, and goes on where it was") {
  const Pipe pipe = MakePipe().value();
  OutputSink sink(pipe.write.get());
  std::string sent;
  for (int i = 0; i < 30000; ++i) {
    sent += "line " + std::to_string(i) + "\n";
  }
  sent += std::string(100'000, 'x') + "\n";
  std::string got;
  int waits = 0;
  const int error = sink.Write(sent, [&](int) {
    ++waits;
    got += ReadNow(pipe.read.get());
    return true;
  });
  got += ReadNow(pipe.read.get());
  CHECK(error == 0);
  CHECK(waits > 0);
  CHECK(got == sent);
}

TEST_CASE("sink cuts between lines, not inside them, when the pipe is full") {
  const Pipe pipe = MakePipe().value();
  OutputSink sink(pipe.write.get());
  std::string text;
  for (int i = 0; i < 10000; ++i) {
    text += std::string(60, 'a') + "\n";
  }
  CHECK(sink.Write(text, kGiveUp) == 0);
  const std::string got = ReadNow(pipe.read.get());
  REQUIRE_FALSE(got.empty());
  CHECK(got.size() < text.size());
  CHECK(got.back() == '\n');
  CHECK_FALSE(sink.closed());
}

TEST_CASE("sink reports a closed pipe once and drops what follows") {
  sigset_t blocked;
  sigset_t before;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &blocked, &before);
  SECTION("closed before") {
    Pipe pipe = MakePipe().value();
    pipe.read.Reset();
    OutputSink sink(pipe.write.get());
    CHECK(sink.Write("x\n", kGiveUp) == EPIPE);
    CHECK(sink.closed());
    CHECK(sink.Write("x\n", kGiveUp) == 0);
  }
  SECTION("closed later") {
    Pipe pipe = MakePipe().value();
    OutputSink sink(pipe.write.get());
    pipe.read.Reset();
    CHECK(sink.Write("x\n", kGiveUp) == EPIPE);
    CHECK(sink.closed());
  }
  SECTION("a socket") {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    UniqueFd ours(ends[0]);
    UniqueFd theirs(ends[1]);
    OutputSink sink(ours.get());
    CHECK(sink.Write("x\n", kGiveUp) == 0);
    CHECK(ReadNow(theirs.get()) == "x\n");
    CHECK(sink.Write(std::string(10 << 20, 'x'), kGiveUp) == 0);  // Full, but not blocked.
    theirs.Reset();
    CHECK(sink.Write("x\n", kGiveUp) == EPIPE);
  }
  const timespec now{};
  ::sigtimedwait(&blocked, nullptr, &now);  // Takes a pending SIGPIPE off.
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST_CASE("sink writes to a file at its offset") {
  const TemporaryFolder folder;
  const std::string path = folder.Write("log", "kept\n");
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_APPEND));
  OutputSink sink(fd.get());
  CHECK(sink.Write("new\n", kGiveUp) == 0);
  CHECK(folder.Read("log") == "kept\nnew\n");
}

}  // namespace
}  // namespace muster::launcher
