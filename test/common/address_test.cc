#include "common/address.h"

#include <catch2/catch.hpp>

namespace muster {

TEST_CASE("address literals come back as they went") {
  for (const char* literal : {"127.0.0.1:4711", "10.1.2.3:0", "[::1]:65535", "[fd00::2]:80"}) {
    CAPTURE(literal);
    const Result<SocketAddress> address = ParseAddress(literal);
    REQUIRE(address.ok());
    CHECK(ToLiteral(address.value()) == literal);
    const HostAndPort split = SplitAddress(literal).value();
    CHECK(JoinAddress(split.host, split.port) == literal);
  }
}

TEST_CASE("names, ports out of range and junk are no address literals") {
  for (const std::string& text : {std::string(),
                                  std::string("localhost:1"),
                                  std::string("127.0.0.1"),
                                  std::string("127.0.0.1:"),
                                  std::string("127.0.0.1:65536"),
                                  std::string("127.0.0.1:-1"),
                                  std::string("127.0.0.1:80 "),
                                  std::string("127.1:80"),
                                  std::string("[127.0.0.1]:80"),
                                  std::string("::1:80"),
                                  std::string("[::1:80"),
                                  std::string("[]:80"),
                                  std::string("[fe80::1%eth0]:80"),
                                  std::string("127.0.0.1\0x:80", 14)}) {
    CAPTURE(text);
    CHECK_FALSE(ParseAddress(text).ok());
    CHECK_FALSE(SplitAddress(text).ok());
    CHECK(ParseAddress(text).status().code() == StatusCode::kInvalid);
  }
}

TEST_CASE("address with a zone is refused with the reason") {
  CHECK_THAT(ParseAddress("[fe80::1%eth0]:80").status().message(),
             Catch::Contains("zone") && Catch::Contains("fe80::1%eth0"));
}

TEST_CASE("an error about an address stays short whatever was written") {
  CHECK(ParseAddress(std::string(100000, 'x')).status().message().size() < 200);
}

TEST_CASE("hosts are compared as the kernel writes them") {
  CHECK(CanonicalHost("FD00:0:0::2").value() == "fd00::2");
  CHECK(CanonicalHost("10.0.0.2").value() == "10.0.0.2");
  for (const char* bad : {"", "localhost", "010.0.0.2", "10.0.0.2:1", "[::1]"}) {
    CAPTURE(bad);
    CHECK_FALSE(CanonicalHost(bad).ok());
  }
}

TEST_CASE("hosts have the family of their spelling") {
  CHECK(FamilyOf("10.0.0.2") == AF_INET);
  CHECK(FamilyOf("::1") == AF_INET6);
  CHECK(FamilyOf("eth0") == 0);
}

TEST_CASE("loopback is all of 127.0.0.0/8, and ::1") {
  CHECK(IsLoopbackHost("127.0.0.1"));
  CHECK(IsLoopbackHost("127.200.0.9"));
  CHECK(IsLoopbackHost("0:0:0:0:0:0:0:1"));
  CHECK_FALSE(IsLoopbackHost("12.7.0.1"));
  CHECK_FALSE(IsLoopbackHost("::2"));
  CHECK_FALSE(IsLoopbackHost("localhost"));
  CHECK(IsLoopbackAddress("127.0.0.1:80"));
  CHECK(IsLoopbackAddress("[::1]:80"));
  CHECK_FALSE(IsLoopbackAddress("10.0.0.2:80"));
  CHECK_FALSE(IsLoopbackAddress("127.0.0.1"));
}

}  // namespace muster
