#include "launcher/driver/agent_launcher.h"

#include <unistd.h>

#include <catch2/catch.hpp>

namespace muster::launcher {
namespace {

TEST_CASE("loopback names and literals and the own name are hosts of this machine") {
  char own[256] = {};
  REQUIRE(::gethostname(own, sizeof own - 1) == 0);
  for (const std::string name : {"localhost", "LOCALHOST", "127.0.0.1", "127.0.0.2", "::1"}) {
    INFO(name);
    CHECK(IsLocalHost({name}));
  }
  CHECK(IsLocalHost({own}));
}

TEST_CASE("other names and addresses are not hosts of this machine") {
  for (const std::string name : {"worker-1.example", "192.0.2.1", "2001:db8::1", "", "127"}) {
    INFO(name);
    CHECK_FALSE(IsLocalHost({name}));
  }
}

}  // namespace
}  // namespace muster::launcher
