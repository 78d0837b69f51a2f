#include "discovery/fixed_host_source.h"

#include <catch2/catch.hpp>

namespace muster::discovery {
namespace {

TEST_CASE("fixed host source gives the same list at every poll, until it is cancelled") {
  const std::vector<ListedHost> list{{HostId{"a"}, 2}, {HostId{"b"}, 0}};
  FixedHostSource source(list);
  CHECK(source.Poll().value().hosts == list);
  CHECK(source.Poll().value().hosts == list);
  source.Cancel();
  CHECK(source.Poll().status().code() == StatusCode::kAborted);
}

}  // namespace
}  // namespace muster::discovery
