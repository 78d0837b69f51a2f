#include "discovery/fixed_host_source.h"

#include <catch2/catch.hpp>

namespace muster::discovery {
namespace {

TEST_CASE("fixed host source gives the same list at every poll, until it is cancelled") {
  const HostList list{{{HostId{"a"}, 2}, {HostId{"b"}, 0}}, {"a warning"}};
  FixedHostSource source(list);
  CHECK(source.Poll().value() == list);
  CHECK(source.Poll().value() == list);
  source.Cancel();
  CHECK(source.Poll().status().code() == StatusCode::kAborted);
}

}  // namespace
}  // namespace muster::discovery
