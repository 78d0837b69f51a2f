#include "discovery/agent_host_source.h"

#include <catch2/catch.hpp>
#include <thread>

namespace muster::discovery {
namespace {

const HostId kA{"a"};
const HostId kB{"b"};

std::vector<ListedHost> Hosts(AgentHostSource& source) {
  return source.Poll().value().hosts;
}

TEST_CASE("agent host source lists hosts in the order in which they came") {
  AgentHostSource source;
  CHECK(Hosts(source).empty());
  source.Joined(kB, 2);
  source.Joined(kA, 1);
  CHECK(Hosts(source) == std::vector<ListedHost>{{kB, 2}, {kA, 1}});
  source.Left(kB);
  CHECK(Hosts(source) == std::vector<ListedHost>{{kA, 1}});
  source.Joined(kB, 4);
  CHECK(Hosts(source) == std::vector<ListedHost>{{kA, 1}, {kB, 4}});
}

TEST_CASE("agent host source lets a host that joins again keep its place, with its new count") {
  AgentHostSource source;
  source.Joined(kA, 1);
  source.Joined(kB, 2);
  source.Joined(kA, 3);
  CHECK(Hosts(source) == std::vector<ListedHost>{{kA, 3}, {kB, 2}});
  source.Left(kA);
  source.Left(kA);
  CHECK(Hosts(source) == std::vector<ListedHost>{{kB, 2}});
}

TEST_CASE("agent host source is cancelled for good") {
  AgentHostSource source;
  source.Cancel();
  source.Joined(kA, 1);
  CHECK(source.Poll().status().code() == StatusCode::kAborted);
}

TEST_CASE("agent host source is polled while hosts come and go") {
  AgentHostSource source;
  std::thread agents([&source] {
    for (int i = 0; i < 1000; ++i) {
      source.Joined(kA, 1);
      source.Joined(kB, 1);
      source.Left(kA);
    }
  });
  for (int i = 0; i < 1000; ++i) {
    CHECK(Hosts(source).size() <= 2);
  }
  agents.join();
  CHECK(Hosts(source) == std::vector<ListedHost>{{kB, 1}});
}

}  // namespace
}  // namespace muster::discovery
