#include "launcher/security/secret_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "test/support/temporary_folder.h"

namespace muster::launcher {
namespace {

using Catch::Matchers::Contains;

const std::string kGood = "0123456789abcdef";

std::string Refusal(const std::string& path) {
  const Result<std::string> read = ReadSecretFile(path);
  REQUIRE_FALSE(read.ok());
  CHECK(read.status().code() == StatusCode::kInvalid);
  CHECK_THAT(read.status().message(), Contains(path));
  return read.status().message();
}

TEST_CASE("secret file gives its one line without the end") {
  const TemporaryFolder folder;
  for (const char* end : {"", "\n", "\r\n"}) {
    CHECK(ReadSecretFile(folder.Write("secret", kGood + end, 0600)).value() == kGood);
  }
  const std::string longest(kSecretFileBytesMax, 'x');
  CHECK(ReadSecretFile(folder.Write("secret", longest, 0400)).value() == longest);
}

TEST_CASE("secret file that is short, long, or no single word is refused with a remedy") {
  const TemporaryFolder folder;
  CHECK_THAT(Refusal(folder.Write("a", "", 0600)), Contains("openssl rand -hex 32"));
  CHECK_THAT(Refusal(folder.Write("b", "0123456789abcde\n", 0600)), Contains("fewer than 16"));
  CHECK_THAT(Refusal(folder.Write("c", std::string(kSecretFileBytesMax + 1, 'x'), 0600)),
             Contains("longer than 4096"));
  for (const std::string& bad : {kGood + "\n\n",
                                 kGood + "\n" + kGood,
                                 kGood + " x",
                                 kGood + "\t",
                                 kGood + "\x7f",
                                 kGood + "\xc3\xa4",
                                 kGood + std::string(1, '\0')}) {
    CHECK_THAT(Refusal(folder.Write("d", bad, 0600)), Contains("one line of printable"));
  }
}

TEST_CASE("secret file that others may read is refused") {
  const TemporaryFolder folder;
  for (const mode_t mode : {0640, 0604, 0620, 0602, 0610, 0644, 0666}) {
    INFO(mode);
    CHECK_THAT(Refusal(folder.Write("secret", kGood, mode)), Contains("chmod 600"));
  }
}

TEST_CASE("secret file of another user may be readable by group, not by everyone") {
  if (::geteuid() != 0) {
    WARN("skipped: only root can give a file away");
    return;
  }
  const TemporaryFolder folder;
  const std::string path = folder.Write("secret", kGood, 0640);
  REQUIRE(::chown(path.c_str(), 65534, 0) == 0);
  CHECK(ReadSecretFile(path).value() == kGood);
  REQUIRE(::chmod(path.c_str(), 0644) == 0);
  CHECK_THAT(Refusal(path), Contains("chmod 600"));
}

TEST_CASE("secret file must be a regular file, though a link to one will do") {
  const TemporaryFolder folder;
  CHECK_THAT(Refusal(folder.Path("")), Contains("not a regular file"));
  CHECK_THAT(Refusal(folder.Path("missing")), Contains("No such file"));
  REQUIRE(::mkfifo(folder.Path("fifo").c_str(), 0600) == 0);
  CHECK_THAT(Refusal(folder.Path("fifo")), Contains("not a regular file"));
  const std::string target = folder.Write("secret", kGood, 0600);
  REQUIRE(::symlink(target.c_str(), folder.Path("link").c_str()) == 0);
  CHECK(ReadSecretFile(folder.Path("link")).value() == kGood);
}

}  // namespace
}  // namespace muster::launcher
