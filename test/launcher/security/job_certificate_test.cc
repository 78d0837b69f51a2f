#include "launcher/security/job_certificate.h"

#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <catch2/catch.hpp>
#include <ctime>
#include <memory>

namespace muster::launcher {
namespace {

const std::string kSecret = "a secret of this job";

template <class T>
using Owned = std::unique_ptr<T, void (*)(T*)>;

Owned<X509> Parse(const std::string& pem) {
  const Owned<BIO> bytes(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())),
                         [](BIO* bio) { BIO_free(bio); });
  Owned<X509> certificate(PEM_read_bio_X509(bytes.get(), nullptr, nullptr, nullptr), X509_free);
  REQUIRE(certificate != nullptr);
  return certificate;
}

// What a client would find at this time; X509_V_OK is good.
int Verify(const std::string& authority, const std::string& leaf, std::time_t now) {
  const Owned<X509> trusted = Parse(authority);
  const Owned<X509> shown = Parse(leaf);
  const Owned<X509_STORE> store(X509_STORE_new(), X509_STORE_free);
  X509_STORE_add_cert(store.get(), trusted.get());
  const Owned<X509_STORE_CTX> context(X509_STORE_CTX_new(), X509_STORE_CTX_free);
  X509_STORE_CTX_init(context.get(), store.get(), shown.get(), nullptr);
  X509_VERIFY_PARAM* param = X509_STORE_CTX_get0_param(context.get());
  X509_VERIFY_PARAM_set_time(param, now);
  X509_VERIFY_PARAM_set_purpose(param, X509_PURPOSE_SSL_SERVER);
  X509_VERIFY_PARAM_set1_host(param, kDriverName, 0);
  X509_verify_cert(context.get());
  return X509_STORE_CTX_get_error(context.get());
}

constexpr std::time_t kYear2001 = 978'307'200;
constexpr std::time_t kYear2100 = 4'102'444'800;
constexpr std::time_t kYear1990 = 631'152'000;

TEST_CASE("job certificate holds under any copy of the authority of the same secret") {
  const std::string one = JobAuthority(kSecret).value();
  const std::string other = JobAuthority(kSecret).value();
  CHECK(one != other);
  const ServerIdentity identity = MakeServerIdentity(kSecret).value();
  CHECK(Verify(one, identity.certificate_pem, kYear2100) == X509_V_OK);
  CHECK(Verify(other, identity.certificate_pem, kYear2100) == X509_V_OK);
}

TEST_CASE("job certificate does not depend on the clock of a host, within reason") {
  const std::string authority = JobAuthority(kSecret).value();
  const std::string leaf = MakeServerIdentity(kSecret).value().certificate_pem;
  CHECK(Verify(authority, leaf, kYear2001) == X509_V_OK);
  CHECK(Verify(authority, leaf, kYear1990) == X509_V_ERR_CERT_NOT_YET_VALID);
}

TEST_CASE("job certificate of another secret does not hold") {
  const std::string authority = JobAuthority(kSecret).value();
  for (const std::string& other : {kSecret + "!", std::string(), std::string(1000, 'x')}) {
    CHECK(Verify(authority, MakeServerIdentity(other).value().certificate_pem, kYear2100) !=
          X509_V_OK);
  }
}

TEST_CASE("job certificate is of use to the driver alone, and signs nothing") {
  const ServerIdentity identity = MakeServerIdentity(kSecret).value();
  const Owned<X509> leaf = Parse(identity.certificate_pem);
  CHECK(X509_check_ca(leaf.get()) == 0);
  CHECK(X509_check_host(leaf.get(), kDriverName, 0, 0, nullptr) == 1);
  CHECK(X509_check_host(leaf.get(), "localhost", 0, 0, nullptr) == 0);
  CHECK(X509_check_purpose(leaf.get(), X509_PURPOSE_SSL_CLIENT, 0) == 0);
}

TEST_CASE("job authority has the same key for the same secret, and is an authority") {
  const Owned<X509> one = Parse(JobAuthority(kSecret).value());
  const Owned<X509> other = Parse(JobAuthority(kSecret).value());
  const Owned<X509> foreign = Parse(JobAuthority("another").value());
  CHECK(EVP_PKEY_eq(X509_get0_pubkey(one.get()), X509_get0_pubkey(other.get())) == 1);
  CHECK(EVP_PKEY_eq(X509_get0_pubkey(one.get()), X509_get0_pubkey(foreign.get())) == 0);
  CHECK(X509_check_ca(one.get()) == 1);
  CHECK(X509_get_pathlen(one.get()) == 0);
  CHECK(X509_verify(one.get(), X509_get0_pubkey(other.get())) == 1);
}

TEST_CASE("job certificates have a key of their own each time, never the authority's") {
  const ServerIdentity one = MakeServerIdentity(kSecret).value();
  const ServerIdentity other = MakeServerIdentity(kSecret).value();
  CHECK(one.key_pem != other.key_pem);
  CHECK(EVP_PKEY_eq(X509_get0_pubkey(Parse(one.certificate_pem).get()),
                    X509_get0_pubkey(Parse(JobAuthority(kSecret).value()).get())) == 0);
}

// Two versions of muster must derive the same key, or a job could not have both.
TEST_CASE("job authority is derived from the secret in the way that is written down") {
  const Owned<X509> authority = Parse(JobAuthority("0123456789abcdef").value());
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  REQUIRE(X509_pubkey_digest(authority.get(), EVP_sha256(), digest, &size) == 1);
  std::string hex;
  for (unsigned int i = 0; i < 8; ++i) {
    char text[3];
    std::snprintf(text, sizeof text, "%02x", digest[i]);
    hex += text;
  }
  CHECK(hex == "e9eec972e9e8e572");
}

}  // namespace
}  // namespace muster::launcher
