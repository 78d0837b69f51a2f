#include "discovery/hostfile_host_source.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>

#include "test/support/temporary_folder.h"

namespace muster::discovery {
namespace {

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

TEST_CASE("hostfile source sees an edit at the next poll") {
  const TemporaryFolder folder;
  const std::string path = folder.Write("hosts", "a slots=2\n");
  HostfileHostSource source(path, {});
  CHECK(source.Poll().value().hosts == std::vector<ListedHost>{{HostId{"a"}, 2}});
  folder.Write("hosts", "a slots=2\nb:1\n");
  CHECK(source.Poll().value().hosts == std::vector<ListedHost>{{HostId{"a"}, 2}, {HostId{"b"}, 1}});
  folder.Write("hosts", "a slots=two\n");
  CHECK_THAT(source.Poll().status().message(), StartsWith(path + ":1: "));
}

TEST_CASE("hostfile source says why it cannot read") {
  const TemporaryFolder folder;
  HostfileHostSource missing(folder.Path("nowhere"), {});
  CHECK_THAT(missing.Poll().status().message(),
             Contains("nowhere") && Contains("No such file or directory"));
  HostfileHostSource directory(folder.Path("."), {});
  CHECK_THAT(directory.Poll().status().message(), Contains("not a regular file"));
}

TEST_CASE("hostfile source refuses a pipe instead of waiting for its writer") {
  const TemporaryFolder folder;
  REQUIRE(::mkfifo(folder.Path("pipe").c_str(), 0600) == 0);
  HostfileHostSource source(folder.Path("pipe"), {});
  CHECK_THAT(source.Poll().status().message(), Contains("not a regular file"));
}

TEST_CASE("hostfile source bounds what it reads") {
  const TemporaryFolder folder;
  HostfileHostSource source(folder.Write("hosts", std::string(kHostListBytesMax + 5, '\n')), {});
  CHECK_THAT(source.Poll().status().message(), Contains("KiB"));
}

TEST_CASE("hostfile source gives no list once it is cancelled") {
  const TemporaryFolder folder;
  HostfileHostSource source(folder.Write("hosts", "a:1\n"), {});
  source.Cancel();
  CHECK(source.Poll().status().code() == StatusCode::kAborted);
}

}  // namespace
}  // namespace muster::discovery
