#include "common/write_line.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <string>

#include "common/process.h"
#include "common/unique_fd.h"
#include "test/support/temporary_folder.h"

namespace muster {
namespace {

constexpr std::chrono::milliseconds kPatience{1};

std::string ReadSome(int fd) {
  std::string text(65536, '\0');
  const ssize_t size = ::read(fd, text.data(), text.size());
  text.resize(size > 0 ? static_cast<size_t>(size) : 0);
  return text;
}

// As much as it holds; then it blocks again.
void Fill(int fd) {
  ::fcntl(fd, F_SETFL, O_NONBLOCK);
  const std::string block(4096, 'x');
  while (::write(fd, block.data(), block.size()) > 0) {
  }
  ::fcntl(fd, F_SETFL, 0);
}

TEST_CASE("write line writes one line, and cuts one that a pipe might not take at once") {
  const Pipe pipe = MakePipe().value();
  WriteLine(pipe.write.get(), "the end", kPatience);
  CHECK(ReadSome(pipe.read.get()) == "the end\n");
  WriteLine(pipe.write.get(), std::string(10000, 'x'), kPatience);
  CHECK(ReadSome(pipe.read.get()) == std::string(4095, 'x') + "\n");
}

TEST_CASE("write line gives up where nobody takes anything") {
  const Pipe pipe = MakePipe().value();
  Fill(pipe.write.get());
  WriteLine(pipe.write.get(), "lost", kPatience);  // One that waits would hang here.
  CHECK(ReadSome(pipe.read.get()).find("lost") == std::string::npos);
}

// stderr may be a socket of systemd's journal.
TEST_CASE("write line speaks into a socket, and gives up if that is full") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  const UniqueFd here(ends[0]);
  const UniqueFd there(ends[1]);
  WriteLine(here.get(), "the end", kPatience);
  CHECK(ReadSome(there.get()) == "the end\n");
  Fill(here.get());
  WriteLine(here.get(), "lost", kPatience);
}

TEST_CASE("write line adds to a file, wherever others have written") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("log");
  const UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  REQUIRE(file.valid());
  const std::string before = "before\n";
  REQUIRE(::write(file.get(), before.data(), before.size()) == static_cast<ssize_t>(before.size()));
  WriteLine(file.get(), "the end", kPatience);
  REQUIRE(::lseek(file.get(), 0, SEEK_SET) == 0);
  CHECK(ReadSome(file.get()) == "before\nthe end\n");
}

// A signal would end the process with another code than the one that it is about to give.
TEST_CASE("write line raises no signal where nobody is left") {
  Pipe pipe = MakePipe().value();
  pipe.read.Reset();
  const auto before = ::signal(SIGPIPE, [](int) { FAIL("SIGPIPE"); });
  WriteLine(pipe.write.get(), "to nobody", kPatience);
  ::signal(SIGPIPE, before);
  SUCCEED("no signal came");
}

}  // namespace
}  // namespace muster
