#include "worker/listen_plan.h"

#include <catch2/catch.hpp>

namespace muster::worker {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

TEST_CASE("listen plan is loopback and any port unless the agent says otherwise") {
  const ListenPlan plan = ReadListenPlan("", "").value();
  CHECK(plan.hosts.empty());
  CHECK(plan.ports.any());
}

TEST_CASE("listen plan takes several addresses and a range of ports") {
  const ListenPlan plan = ReadListenPlan("10.0.0.2:0,[FD00::2]:0", "41000-41009").value();
  CHECK(plan.hosts == std::vector<std::string>{"10.0.0.2", "fd00::2"});
  CHECK(plan.ports == PortRange{41000, 41009});
}

TEST_CASE("listen plan names the variable that is wrong") {
  for (const char* bad : {"localhost:0", "10.0.0.2", ",10.0.0.2:0", "10.0.0.2:0;10.0.0.3:0"}) {
    CAPTURE(bad);
    const Result<ListenPlan> plan = ReadListenPlan(bad, "");
    CHECK_FALSE(plan.ok());
    CHECK_THAT(plan.status().message(), StartsWith("MUSTER_LISTEN=") && Contains("address"));
  }
  CHECK_THAT(ReadListenPlan("", "9-1").status().message(), StartsWith("MUSTER_PORT_RANGE=9-1: "));
}

}  // namespace muster::worker
