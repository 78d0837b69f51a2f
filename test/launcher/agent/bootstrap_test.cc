#include "launcher/agent/bootstrap.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/process.h"
#include "common/version.h"

namespace muster::launcher {
namespace {

v1::AgentBootstrap Good() {
  v1::AgentBootstrap bootstrap;
  bootstrap.set_host("host-a");
  bootstrap.set_job_id("job");
  bootstrap.set_secret("secret");
  bootstrap.add_driver()->set_literal("127.0.0.1:1");
  bootstrap.set_protocol(kProtocolVersion);
  return bootstrap;
}

Result<v1::AgentBootstrap> Read(const std::string& bytes, bool close) {
  Pipe pipe = MakePipe().value();
  REQUIRE(::write(pipe.write.get(), bytes.data(), bytes.size()) ==
          static_cast<ssize_t>(bytes.size()));
  if (close) {
    pipe.write.Reset();
  }
  return ReadBootstrap(pipe.read.get(), std::chrono::milliseconds(20));
}

StatusCode CodeOf(const std::string& bytes, bool close = true) {
  return Read(bytes, close).status().code();
}

}  // namespace

TEST_CASE("bootstrap is read from a pipe that stays open") {
  const Result<v1::AgentBootstrap> read = Read(EncodeBootstrap(Good()), false);
  REQUIRE(read.ok());
  CHECK(read.value().host() == "host-a");
  CHECK(read.value().secret() == "secret");
}

TEST_CASE("bootstrap refuses every cut of its bytes") {
  const std::string bytes = EncodeBootstrap(Good());
  for (size_t size = 0; size < bytes.size(); ++size) {
    CHECK(CodeOf(bytes.substr(0, size)) == StatusCode::kInvalid);
  }
}

TEST_CASE("bootstrap gives up on a silent driver") {
  CHECK(CodeOf("", false) == StatusCode::kTimeout);
  CHECK(CodeOf("\x05", false) == StatusCode::kTimeout);
}

TEST_CASE("bootstrap refuses a length that nobody would send") {
  CHECK(CodeOf("\xff\xff\xff\xff") == StatusCode::kInvalid);
}

TEST_CASE("bootstrap refuses another protocol and missing fields") {
  v1::AgentBootstrap other = Good();
  other.set_protocol(kProtocolVersion + 1);
  CHECK(CodeOf(EncodeBootstrap(other)) == StatusCode::kInvalid);
  v1::AgentBootstrap nameless = Good();
  nameless.clear_host();
  CHECK(CodeOf(EncodeBootstrap(nameless)) == StatusCode::kInvalid);
}

TEST_CASE("bootstrap refuses a terminal, and says what a remote shell must do") {
  const UniqueFd master(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  REQUIRE(::grantpt(master.get()) == 0);
  REQUIRE(::unlockpt(master.get()) == 0);
  const UniqueFd terminal(::open(::ptsname(master.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  const Status status = ReadBootstrap(terminal.get(), std::chrono::milliseconds(20)).status();
  CHECK(status.code() == StatusCode::kInvalid);
  CHECK_THAT(status.message(), Catch::Contains("no -t") && Catch::Contains("--rsh-agent"));
}

TEST_CASE("bootstrap refuses a plain file, whose end tells nothing") {
  FILE* file = ::tmpfile();
  CHECK(ReadBootstrap(::fileno(file), std::chrono::milliseconds(20)).status().code() ==
        StatusCode::kInvalid);
  ::fclose(file);
}

}  // namespace muster::launcher
