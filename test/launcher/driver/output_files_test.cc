#include "launcher/driver/output_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "test/support/temporary_folder.h"

namespace muster::launcher {
namespace {

OutputLines Lines(uint64_t incarnation, int32_t rank, std::string text, bool is_stderr = false) {
  return {{incarnation}, {{"10.0.0.1"}, 2}, rank, is_stderr, std::move(text)};
}

TEST_CASE("output files keep stdout and stderr apart, by rank with zeros before it") {
  const TemporaryFolder folder;
  OutputFiles files(folder.Path("logs"), 12);
  REQUIRE(files.Prepare().ok());
  REQUIRE(files.Append(Lines(1, 3, "out\n")).ok());
  REQUIRE(files.Append(Lines(1, 3, "err\n", true)).ok());
  REQUIRE(files.Append(Lines(2, 11, "eleven\n")).ok());
  REQUIRE(files.Append(Lines(3, 100, "beyond\n")).ok());
  CHECK(folder.Read("logs/rank.03/stdout") == "out\n");
  CHECK(folder.Read("logs/rank.03/stderr") == "err\n");
  CHECK(folder.Read("logs/rank.11/stdout") == "eleven\n");
  CHECK(folder.Read("logs/rank.100/stdout") == "beyond\n");
}

TEST_CASE("output files need no zeros for ten ranks or fewer, one rank included") {
  for (const uint32_t ranks : {0, 1, 10}) {
    const TemporaryFolder folder;
    OutputFiles files(folder.Path("."), ranks);
    REQUIRE(files.Append(Lines(1, 0, "x\n")).ok());
    CHECK(folder.Read("rank.0/stdout") == "x\n");
  }
}

TEST_CASE("output files stay with an incarnation when its rank changes") {
  const TemporaryFolder folder;
  OutputFiles files(folder.Path("."), 4);
  REQUIRE(files.Append(Lines(7, 2, "as 2\n")).ok());
  REQUIRE(files.Append(Lines(7, 0, "as 0\n")).ok());
  CHECK(folder.Read("rank.2/stdout") == "as 2\nas 0\n");
  CHECK(::access(folder.Path("rank.0").c_str(), F_OK) != 0);
}

TEST_CASE(
    "output files of a replacement go behind those of the lost worker, of this job or before") {
  const TemporaryFolder folder;
  {
    OutputFiles files(folder.Path("."), 4);
    REQUIRE(files.Append(Lines(1, 2, "lost\n")).ok());
    REQUIRE(files.Append(Lines(5, 2, "replacement\n")).ok());
  }
  OutputFiles files(folder.Path("."), 4);
  REQUIRE(files.Append(Lines(1, 2, "next job\n")).ok());
  CHECK(folder.Read("rank.2/stdout") == "lost\nreplacement\nnext job\n");
}

TEST_CASE("output files name the slot of a worker without a rank, until it has one") {
  const TemporaryFolder folder;
  OutputFiles files(folder.Path("."), 4);
  REQUIRE(files.Append(Lines(1, -1, "starting\n")).ok());
  REQUIRE(files.Append(Lines(1, 1, "training\n")).ok());
  CHECK(folder.Read("slot.10.0.0.1.2/stdout") == "starting\n");
  CHECK(folder.Read("rank.1/stdout") == "training\n");
  OutputLines odd = Lines(2, -1, "x\n");
  odd.slot.host.value = "../../evil";
  REQUIRE(files.Append(odd).ok());
  CHECK(folder.Read("slot..._.._evil.2/stdout") == "x\n");
}

TEST_CASE("output files of more workers than may be open lose nothing") {
  const TemporaryFolder folder;
  OutputFiles files(folder.Path("."), 1000);
  for (int round = 0; round < 2; ++round) {
    for (int32_t rank = 0; rank < 300; ++rank) {
      REQUIRE(files.Append(Lines(static_cast<uint64_t>(rank) + 1, rank, "x\n")).ok());
    }
  }
  CHECK(folder.Read("rank.000/stdout") == "x\nx\n");
  CHECK(folder.Read("rank.299/stdout") == "x\nx\n");
}

TEST_CASE("output files say at the start that the folder cannot be made") {
  const TemporaryFolder folder;
  const std::string file = folder.Write("file", "");
  const Status status = OutputFiles(file + "/logs", 1).Prepare();
  REQUIRE_FALSE(status.ok());
  CHECK_THAT(status.message(), Catch::Matchers::Contains(file));
  CHECK_FALSE(OutputFiles(file, 1).Append(Lines(1, 0, "x\n")).ok());
}

}  // namespace
}  // namespace muster::launcher
