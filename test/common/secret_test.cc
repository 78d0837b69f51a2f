#include "common/secret.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cctype>
#include <string>

namespace muster {
namespace {

std::string Hex(const Digest& digest) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const uint8_t byte : digest) {
    hex.push_back(kDigits[byte >> 4]);
    hex.push_back(kDigits[byte & 15]);
  }
  return hex;
}

// Test cases 1 to 4, 6 and 7 of RFC 4231 (5 truncates, which we never do).
TEST_CASE("hmac gives the digests of RFC 4231") {
  CHECK(Hex(HmacSha256(std::string(20, '\x0b'), "Hi There")) ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(Hex(HmacSha256("Jefe", "what do ya want for nothing?")) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(Hex(HmacSha256(std::string(20, '\xaa'), std::string(50, '\xdd'))) ==
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  std::string counting;
  for (char byte = 1; byte <= 25; ++byte) {
    counting.push_back(byte);
  }
  CHECK(Hex(HmacSha256(counting, std::string(50, '\xcd'))) ==
        "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  CHECK(Hex(HmacSha256(std::string(131, '\xaa'),
                       "Test Using Larger Than Block-Size Key - Hash Key First")) ==
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
  CHECK(Hex(HmacSha256(std::string(131, '\xaa'),
                       "This is a test using a larger than block-size key and a larger than "
                       "block-size data. The key needs to be hashed before being used by the "
                       "HMAC algorithm.")) ==
        "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

TEST_CASE("random hex has two lower-case digits per byte and differs each time") {
  const std::string a = RandomHex(16);
  CHECK(a.size() == 32);
  CHECK(std::all_of(a.begin(), a.end(), [](unsigned char c) {
    return std::isxdigit(c) != 0 && std::isupper(c) == 0;
  }));
  CHECK(a != RandomHex(16));
  CHECK(RandomHex(0).empty());
}

TEST_CASE("comparison in constant time compares length and every byte") {
  CHECK(EqualInConstantTime("", ""));
  CHECK(EqualInConstantTime("secret", "secret"));
  CHECK_FALSE(EqualInConstantTime("secret", "secreT"));
  CHECK_FALSE(EqualInConstantTime("Secret", "secret"));
  CHECK_FALSE(EqualInConstantTime("secret", "secret1"));
}

}  // namespace
}  // namespace muster
