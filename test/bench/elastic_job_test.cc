#include "bench/elastic_job.h"

#include <catch2/catch.hpp>

namespace muster::bench {
namespace {

std::string Joined(const ElasticJobOptions& options) {
  std::string text;
  for (const std::string& word : ElasticJobCommand(options, "/bin/")) {
    text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

}  // namespace

// What a job does that has come up is in test/integration/test_recovery.py.

TEST_CASE("a job on one host is one elastic command") {
  CHECK(Joined({.workers = 4}) ==
        "/bin/muster run -np 4 --min-np 1 --max-np 4 -H localhost:4 "
        "--blacklist-cooldown-range 0.5 0.5 --spares 0 "
        "/bin/examples/digits --epochs 1000000000 --step-ms 0 --state-mb 0");
}

TEST_CASE("on two hosts each one has room for its workers and every spare") {
  const std::string command = Joined({.workers = 5, .hosts = 2, .spares = 1, .state_mb = 100});
  CHECK(command.find("-np 5 ") != std::string::npos);
  CHECK(command.find("-H localhost:4,127.0.0.1:3 ") != std::string::npos);
  CHECK(command.find("--spares 1 ") != std::string::npos);
  CHECK(command.ends_with("--state-mb 100"));
}

TEST_CASE("further arguments are muster's, not the program's") {
  const std::string command = Joined({.muster_arguments = {"--verbose"}});
  CHECK(command.find("--verbose") < command.find("/bin/examples/digits"));
}

}  // namespace muster::bench
