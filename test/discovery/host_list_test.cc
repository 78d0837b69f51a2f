#include "discovery/host_list.h"

#include <catch2/catch.hpp>

#include "common/random.h"

namespace muster::discovery {
namespace {

HostList Lines(std::string_view text, DefaultSlots slots = {}) {
  Result<HostList> list = ParseHostLines(text, slots);
  INFO(list.status().message());
  REQUIRE(list.ok());
  return std::move(list).value();
}

std::string LinesError(std::string_view text) {
  const Result<HostList> list = ParseHostLines(text, {});
  REQUIRE_FALSE(list.ok());
  CHECK(list.status().code() == StatusCode::kInvalid);
  return list.status().message();
}

using Hosts = std::vector<ListedHost>;
ListedHost H(const char* name, uint32_t slots) {
  return {HostId{name}, slots};
}

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

TEST_CASE("host list takes names, addresses and bracketed IPv6, and the count is no part of them") {
  CHECK(Lines("a_b-1.example:2\n10.0.0.3:1\nLOCALHOST:2\n[::1]:2\nlocalhost:2").hosts ==
        Hosts{H("a_b-1.example", 2),
              H("10.0.0.3", 1),
              H("LOCALHOST", 2),
              H("::1", 2),
              H("localhost", 2)});
  CHECK(Lines("[fe80::1%eth0]:3").hosts == Hosts{H("fe80::1%eth0", 3)});
}

TEST_CASE("host list without any entry is empty, not an error") {
  CHECK(Lines("").hosts.empty());
  CHECK(Lines("\n\n").hosts.empty());
  CHECK(Lines("  \n\t\r\n   ").hosts.empty());
  CHECK(Lines("# nothing yet\n").hosts.empty());
}

TEST_CASE("host list tolerates blanks, CRLF and comments") {
  CHECK(Lines("localhost:2\r\n 127.0.0.1:1 \r\n").hosts ==
        Hosts{H("localhost", 2), H("127.0.0.1", 1)});
  CHECK(Lines("# head\n\nh:1 # tail\n  #:x\n").hosts == Hosts{H("h", 1)});
  CHECK(Lines("h : 4").hosts == Hosts{H("h", 4)});
}

TEST_CASE("host list keeps a host with zero slots") {
  CHECK(Lines("localhost:0\n127.0.0.1:2").hosts == Hosts{H("localhost", 0), H("127.0.0.1", 2)});
}

TEST_CASE("host list gives a host that is listed twice its larger count, in either order") {
  const HostList rising = Lines("x:1\nlocalhost:2\nlocalhost:4\n");
  const HostList falling = Lines("x:1\nlocalhost:4\nlocalhost:2\nlocalhost:1\n");
  CHECK(rising.hosts == Hosts{H("x", 1), H("localhost", 4)});
  CHECK(rising == falling);
  REQUIRE(rising.warnings.size() == 1);
  CHECK_THAT(rising.warnings[0], Contains("localhost") && Contains("4"));
}

TEST_CASE("host list needs --slots-per-host for an entry without a count") {
  CHECK(Lines("a\n[::1]\nb:1", 3).hosts == Hosts{H("a", 3), H("::1", 3), H("b", 1)});
  const std::string error = LinesError("localhost:2\n127.0.0.1\n");
  CHECK_THAT(error, StartsWith("line 2: ") && Contains("127.0.0.1"));
  CHECK_THAT(error, Contains("--slots-per-host"));
}

TEST_CASE("host list refuses IPv6 without brackets and says what to write") {
  for (const char* bad : {"::1:2", "::1", "::1:4:x", "2001:db8::5:2"}) {
    CHECK_THAT(LinesError(bad), Contains("[::1]:2") && Contains(bad));
  }
}

TEST_CASE("host list names the line and the entry that is wrong") {
  const auto [text, expected] = GENERATE(table<const char*, const char*>({
      {"a:1\n\nlocalhost:abc\n", "line 3: 'localhost:abc': "},
      {"h:-1", "line 1: 'h:-1': "},
      {"h:", "line 1: 'h:': "},
      {":2", "line 1: ':2': "},
      {"h:1x", "line 1: 'h:1x': "},
      {"h:65536", "line 1: 'h:65536': "},
      {"h:99999999999999999999", "line 1: 'h:99999999999999999999': "},
      {"a:1 b:2", "line 1: 'a:1 b:2': "},
      {"a b", "line 1: 'a b': "},
      {"-oProxyCommand=x:1", "line 1: '-oProxyCommand=x:1': "},
      {"[::1:2", "line 1: '[::1:2': "},
      {"[localhost]:2", "line 1: '[localhost]:2': "},
      {"[::1]2", "line 1: '[::1]2': "},
      {"a,b:2", "line 1: 'a,b:2': "},
  }));
  CHECK_THAT(LinesError(text), StartsWith(expected));
}

TEST_CASE("host list takes exactly the largest count there is") {
  CHECK(Lines("h:65535").hosts == Hosts{H("h", 65535)});
}

TEST_CASE("host list bounds the length of a line, of a name and of all") {
  CHECK_THAT(LinesError(std::string(kHostLineBytesMax + 1, 'a')), Contains("longer than"));
  CHECK_THAT(LinesError(std::string(254, 'a') + ":1"), Contains("longer than"));
  CHECK(Lines(std::string(253, 'a') + ":1").hosts.size() == 1);
  CHECK_THAT(LinesError(std::string(kHostListBytesMax + 1, '\n')), Contains("KiB"));
}

TEST_CASE("host list answers a megabyte of rubbish with one short printable line") {
  Random random(20240601);
  std::string garbage(kHostListBytesMax, '\0');
  for (char& c : garbage) {
    c = static_cast<char>(random.Next());
  }
  const std::string error = LinesError(garbage);
  CHECK(error.size() < 300);
  CHECK(std::all_of(error.begin(), error.end(), [](char c) { return c >= 0x20 && c < 0x7f; }));
}

TEST_CASE("host list never breaks on random input, and what it accepts is in bounds") {
  constexpr std::string_view kAlphabet = "ab:[]1029.-_# \t\r\n,%=slots\xff";
  Random random(7);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text(random.Below(24), ' ');
    for (char& c : text) {
      c = random.Below(20) == 0 ? static_cast<char>(random.Next())
                                : kAlphabet[random.Below(kAlphabet.size())];
    }
    for (const Result<HostList>& list :
         {ParseHostLines(text, 2), ParseHostArgument(text, 2), ParseHostfile(text, "f", 2)}) {
      if (!list.ok()) {
        CHECK(list.status().message().size() < 300);
        continue;
      }
      for (const ListedHost& host : list.value().hosts) {
        ++accepted;
        CHECK(host.slots <= kSlotsMax);
        CHECK_FALSE(host.host.value.empty());
        CHECK(host.host.value.front() != '-');
        CHECK(host.host.value.find_first_of(" \t\r\n,[]#") == std::string::npos);
      }
    }
  }
  CHECK(accepted > 1000);  // Else the inputs test nothing.
}

TEST_CASE("host list reads back what it is made of") {
  Random random(11);
  for (int round = 0; round < 200; ++round) {
    Hosts hosts;
    std::string text;
    for (uint64_t i = 0, count = random.Below(20); i < count; ++i) {
      const auto slots = static_cast<uint32_t>(random.Below(kSlotsMax + 1));
      const bool v6 = random.Below(2) == 0;
      const std::string name = (v6 ? "fd00::" : "host-") + std::to_string(i);
      hosts.push_back(H(name.c_str(), slots));
      text += (v6 ? "[" + name + "]" : name) + ":" + std::to_string(slots) + "\n";
    }
    CHECK(Lines(text).hosts == hosts);
  }
}

TEST_CASE("host argument is separated by commas") {
  const Result<HostList> list = ParseHostArgument("a:2, b:3,[::1]:1", {});
  REQUIRE(list.ok());
  CHECK(list.value().hosts == Hosts{H("a", 2), H("b", 3), H("::1", 1)});
  CHECK(ParseHostArgument("a", 4).value().hosts == Hosts{H("a", 4)});
}

TEST_CASE("host argument refuses empty entries and names bad ones") {
  CHECK_FALSE(ParseHostArgument("", {}).ok());
  CHECK_FALSE(ParseHostArgument("a:1,", {}).ok());
  CHECK_FALSE(ParseHostArgument("a:1,,b:1", {}).ok());
  CHECK_THAT(ParseHostArgument("a:1,b:x", {}).status().message(), StartsWith("'b:x': "));
  CHECK_THAT(ParseHostArgument("a:1,b", {}).status().message(), Contains("--slots-per-host"));
}

TEST_CASE("hostfile takes slots=N and :N, comments and blank lines") {
  const Result<HostList> list =
      ParseHostfile("# c\n\nlocalhost slots=2\n127.0.0.1:1\n[::1]\tslots=3 # x\n", "hosts", {});
  REQUIRE(list.ok());
  CHECK(list.value().hosts == Hosts{H("localhost", 2), H("127.0.0.1", 1), H("::1", 3)});
}

TEST_CASE("hostfile errors show the file and the line") {
  const auto error = [](const char* text) {
    const Result<HostList> list = ParseHostfile(text, "/etc/hosts.txt", {});
    REQUIRE_FALSE(list.ok());
    return list.status().message();
  };
  CHECK_THAT(error("a:1\nlocalhost slots=two\n"), StartsWith("/etc/hosts.txt:2: "));
  CHECK_THAT(error("h max_slots=2"), StartsWith("/etc/hosts.txt:1: ") && Contains("max_slots=2"));
  CHECK_THAT(error("h slots=2 extra"), StartsWith("/etc/hosts.txt:1: "));
  CHECK_THAT(error("h:1 slots=2"), Contains("two slot counts"));
  CHECK_THAT(error("[::1]:1 slots=2"), Contains("two slot counts"));
  CHECK_THAT(error("h"), Contains("--slots-per-host"));
}

TEST_CASE("printable text escapes and cuts") {
  CHECK(Printable("a\nb\x01\xff", 100) == "a\\x0ab\\x01\\xff");
  CHECK(Printable("abcdef", 3) == "abc...");
  CHECK(Printable("abc", 3) == "abc");
}

}  // namespace
}  // namespace muster::discovery
