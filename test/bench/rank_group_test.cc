#include "bench/rank_group.h"

#include <signal.h>

#include <catch2/catch.hpp>

#include "bench/temp_directory.h"

namespace muster::bench {
namespace {

GroupSpec SpecWith(const TempDirectory& folder, std::vector<std::string> command) {
  GroupSpec spec;
  spec.name = "nobody";
  spec.ranks = 2;
  spec.socket = folder.path() + "/nobody.sock";
  spec.log = folder.path() + "/nobody.log";
  spec.commands = {std::move(command)};
  return spec;
}

}  // namespace

// What ranks do that have come up is in test/integration/test_bench.py.

TEST_CASE("a group whose process ends at once is an error with its last words") {
  const TempDirectory folder = TempDirectory::Make().value();
  const auto group = RankGroup::Start(SpecWith(folder, {"sh", "-c", "echo no such device; exit 3"}),
                                      std::chrono::seconds(60));
  REQUIRE_FALSE(group.ok());
  CHECK(group.status().message() ==
        "nobody with 2 ranks: a process ended during starting; the last of its output:"
        "\n    no such device");
}

TEST_CASE("a group that never reports is given up and its processes end") {
  const TempDirectory folder = TempDirectory::Make().value();
  const auto group = RankGroup::Start(
      SpecWith(folder, {"sh", "-c", "trap '' TERM; echo $$; while :; do read x; done </dev/zero"}),
      std::chrono::seconds(1));
  REQUIRE_FALSE(group.ok());
  const std::string& message = group.status().message();
  CHECK(message.find("no answer in time during starting") != std::string::npos);
  // It said who it is; it ignores SIGTERM.
  const pid_t pid = std::stoi(message.substr(message.rfind(' ')));
  CHECK(::kill(pid, 0) != 0);
}

TEST_CASE("a program that is not there is an error with its name") {
  const TempDirectory folder = TempDirectory::Make().value();
  const auto group = RankGroup::Start(SpecWith(folder, {folder.path() + "/no-such-program"}),
                                      std::chrono::seconds(60));
  REQUIRE_FALSE(group.ok());
  CHECK(group.status().message().find("no-such-program") != std::string::npos);
}

TEST_CASE("a socket whose path is too long is an error that says what to do") {
  const TempDirectory folder = TempDirectory::Make().value();
  GroupSpec spec = SpecWith(folder, {"true"});
  spec.socket = folder.path() + "/" + std::string(200, 'x');
  const auto group = RankGroup::Start(std::move(spec), std::chrono::seconds(60));
  REQUIRE_FALSE(group.ok());
  CHECK(group.status().message().find("set TMPDIR") != std::string::npos);
}

}  // namespace muster::bench
