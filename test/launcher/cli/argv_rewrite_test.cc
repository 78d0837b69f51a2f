#include "launcher/cli/argv_rewrite.h"

#include <catch2/catch.hpp>
#include <iterator>

#include "common/random.h"
#include "launcher/cli/flags.h"

namespace muster::launcher {
namespace {

using Catch::Matchers::Contains;
using Words = std::vector<std::string>;

RewrittenArgv Rewrite(const Words& words) {
  Result<RewrittenArgv> result = RewriteArgv(words);
  INFO(result.status().message());
  REQUIRE(result.ok());
  return std::move(result).value();
}

std::string Error(const Words& words) {
  const Result<RewrittenArgv> result = RewriteArgv(words);
  REQUIRE_FALSE(result.ok());
  CHECK(result.status().code() == StatusCode::kInvalid);
  return result.status().message();
}

TEST_CASE("rewriting turns long names with one dash into what CLI11 takes") {
  CHECK(Rewrite({"-np", "4", "-cb", "-hostfile", "f", "-prefix-timestamp", "w"}).flags ==
        Words{"--num-proc=4", "--check-build", "--hostfile=f", "--prefix-output-with-timestamp"});
  CHECK(Rewrite({"-np=4"}).flags == Words{"--num-proc=4"});
}

TEST_CASE("rewriting knows every spelling of a flag as the same") {
  for (const char* name : {"-np", "--num-proc"}) {
    CHECK(Rewrite({name, "4"}).flags == Words{"--num-proc=4"});
  }
  for (const char* name : {"--min-np", "--min-num-proc"}) {
    CHECK(Rewrite({name, "4"}).flags == Words{"--min-np=4"});
  }
  for (const char* name : {"-H", "--hosts"}) {
    CHECK(Rewrite({name, "a:1"}).flags == Words{"--hosts=a:1"});
  }
}

TEST_CASE("rewriting completes unique prefixes") {
  CHECK(Rewrite({"--slots", "4"}).flags == Words{"--slots-per-host=4"});
  CHECK(Rewrite({"--slots=4"}).flags == Words{"--slots-per-host=4"});
  CHECK(Rewrite({"--verb"}).flags == Words{"--verbose"});
  CHECK(Rewrite({"--min", "2"}).flags == Words{"--min-np=2"});  // Both spellings are one flag.
  CHECK(Rewrite({"--network-interface", "a"}).flags == Words{"--network-interface=a"});
}

TEST_CASE("rewriting takes a whole name for what it is though it begins another one") {
  CHECK(Rewrite({"--autotune"}).flags == Words{"--autotune"});
  CHECK(Rewrite({"--mpi-args", "x"}).flags == Words{"--mpi-args=x"});
  CHECK(Rewrite({"--mpi"}).flags == Words{"--mpi"});
}

TEST_CASE("rewriting refuses an ambiguous prefix and lists the candidates") {
  const std::string error = Error({"--discovery", "1"});
  CHECK_THAT(error, Contains("ambiguous"));
  CHECK_THAT(error, Contains("--discovery-interval") && Contains("--discovery-timeout"));
}

TEST_CASE("rewriting suggests the nearest flag for an unknown one") {
  CHECK_THAT(Error({"--max-pn", "3"}), Contains("--max-pn") && Contains("did you mean --max-np"));
  CHECK_THAT(Error({"-np4"}), Contains("did you mean -np"));
  CHECK_THAT(Error({"--no-such-thing-at-all"}), Contains("--help"));
}

TEST_CASE("rewriting leaves everything from the first word on to the command") {
  const RewrittenArgv argv =
      Rewrite({"-np", "2", "python", "train.py", "-np", "3", "--epochs", "--", "-x"});
  CHECK(argv.flags == Words{"--num-proc=2"});
  CHECK(argv.command == Words{"python", "train.py", "-np", "3", "--epochs", "--", "-x"});
  CHECK(Rewrite({"-H", "localhost:1", "127.0.0.1:2", "W"}).command == Words{"127.0.0.1:2", "W"});
}

TEST_CASE("rewriting ends the flags at a double dash, which is no part of the command") {
  const RewrittenArgv argv = Rewrite({"-np", "2", "--", "--odd-name", "x", "--"});
  CHECK(argv.flags == Words{"--num-proc=2"});
  CHECK(argv.command == Words{"--odd-name", "x", "--"});
}

TEST_CASE("rewriting keeps an equals sign, a comma and a blank inside a value") {
  CHECK(Rewrite({"--mpi-args=-x A=b", "-H", "a:1,b:2"}).flags ==
        Words{"--mpi-args=-x A=b", "--hosts=a:1,b:2"});
  CHECK(Rewrite({"--mpi-args", "-x A=b"}).flags == Words{"--mpi-args=-x A=b"});
}

TEST_CASE("rewriting takes the value of a one-letter flag without a blank") {
  CHECK(Rewrite({"-Hlocalhost:2", "-p22"}).flags == Words{"--hosts=localhost:2", "--ssh-port=22"});
}

TEST_CASE("rewriting takes two words for a flag of two values") {
  const RewrittenArgv argv = Rewrite({"--blacklist-cooldown-range", "1", "10", "w"});
  CHECK(argv.flags == Words{"--blacklist-cooldown-range", "1", "10"});
  CHECK(argv.command == Words{"w"});
  CHECK_THAT(Error({"--blacklist-cooldown-range", "1"}), Contains("two values: LO HI"));
  CHECK_THAT(Error({"--blacklist-cooldown-range", "1", "--verbose"}), Contains("--verbose"));
  CHECK_THAT(Error({"--blacklist-cooldown-range=1,10"}), Contains("two words"));
}

TEST_CASE("rewriting refuses a missing and a superfluous value") {
  CHECK_THAT(Error({"-np"}), Contains("-np needs a value: N"));
  CHECK_THAT(Error({"--min-np", "--max-np", "4"}), Contains("--min-np") && Contains("--max-np"));
  CHECK_THAT(Error({"--verbose=1"}), Contains("takes no value"));
  CHECK_THAT(Error({"--elastic-timeout="}), Contains("must not be empty"));
  CHECK_THAT(Error({"--host-discovery-script", ""}), Contains("must not be empty"));
}

TEST_CASE("rewriting passes a negative number on as a value, to be judged there") {
  CHECK(Rewrite({"--reset-limit", "-1"}).flags == Words{"--reset-limit=-1"});
}

TEST_CASE("rewriting never loses a word, whatever the words are") {
  const Words pool{"-np", "4",   "--min", "--slots=3", "-H",  "a:1",        "--",
                   "-",   "w",   "-1",    "--verbose", "--x", "-hostfile",  "=",
                   "-H=", "--=", "",      " ",         "--m", "\xff\x01-np"};
  Random random(5);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    Words words;
    for (uint64_t i = 0, count = random.Below(7); i < count; ++i) {
      words.push_back(pool[random.Below(pool.size())]);
    }
    const Result<RewrittenArgv> result = RewriteArgv(words);
    if (!result.ok()) {
      CHECK_FALSE(result.status().message().empty());
      continue;
    }
    ++accepted;
    const Words& command = result.value().command;
    REQUIRE(command.size() <= words.size());
    CHECK(std::equal(command.rbegin(), command.rend(), words.rbegin()));
  }
  CHECK(accepted > 1000);
}

}  // namespace
}  // namespace muster::launcher
