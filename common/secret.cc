#include "common/secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

namespace muster {

std::string RandomHex(size_t bytes) {
  std::string raw(bytes, '\0');
  const int ok = RAND_bytes(reinterpret_cast<unsigned char*>(raw.data()), static_cast<int>(bytes));
  MUSTER_CHECK(ok == 1, "the system gives no random bytes");
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * bytes);
  for (const char c : raw) {
    hex.push_back(kDigits[(static_cast<uint8_t>(c) >> 4) & 15]);
    hex.push_back(kDigits[static_cast<uint8_t>(c) & 15]);
  }
  return hex;
}

Digest HmacSha256(std::string_view key, std::string_view message) {
  Digest digest{};
  unsigned int size = 0;
  const void* done = HMAC(EVP_sha256(),
                          key.data(),
                          static_cast<int>(key.size()),
                          reinterpret_cast<const unsigned char*>(message.data()),
                          message.size(),
                          digest.data(),
                          &size);
  MUSTER_CHECK(done != nullptr && size == digest.size(), "HMAC-SHA256 failed");
  return digest;
}

bool EqualInConstantTime(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace muster
