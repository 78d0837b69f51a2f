#include "launcher/security/job_certificate.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <array>
#include <cstdint>
#include <memory>

namespace muster::launcher {
namespace {

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
template <class T, auto Free>
using Owned = std::unique_ptr<T, Deleter<Free>>;

using Bignum = Owned<BIGNUM, BN_clear_free>;
using Bytes = Owned<BIO, BIO_free_all>;
using Certificate = Owned<X509, X509_free>;
using Extension = Owned<X509_EXTENSION, X509_EXTENSION_free>;
using Group = Owned<EC_GROUP, EC_GROUP_free>;
using Key = Owned<EVP_PKEY, EVP_PKEY_free>;
using KeyContext = Owned<EVP_PKEY_CTX, EVP_PKEY_CTX_free>;
using ParamBuilder = Owned<OSSL_PARAM_BLD, OSSL_PARAM_BLD_free>;
using Params = Owned<OSSL_PARAM, OSSL_PARAM_free>;
using Point = Owned<EC_POINT, EC_POINT_free>;

constexpr std::string_view kHkdfInfo = "muster tls authority";
constexpr const char* kNotBefore = "20000101000000Z";
constexpr const char* kNotAfter = "99991231235959Z";
constexpr const char* kAuthorityName = "muster job authority";
constexpr size_t kScalarBytes = 32;
constexpr size_t kPublicKeyBytes = 65;  // Uncompressed.
constexpr size_t kSerialBytes = 16;
// A scalar is out of range with a chance of 2^-32, so more than two rounds mean a broken OpenSSL.
constexpr uint8_t kAttemptsMax = 16;

Status Failure(const std::string& what) {
  std::array<char, 256> reason{};
  ERR_error_string_n(ERR_get_error(), reason.data(), reason.size());
  ERR_clear_error();
  return Status::Failed("the job's certificate cannot be made: " + what + ": " + reason.data());
}

// HKDF-SHA256 (RFC 5869) without salt; the attempt's number is the last byte of the info.
bool Derive(std::string_view secret, uint8_t attempt, std::array<uint8_t, kScalarBytes>& out) {
  const std::string info = std::string(kHkdfInfo) + static_cast<char>(attempt);
  const KeyContext context(EVP_PKEY_CTX_new_id(EVP_PKEY_HKDF, nullptr));
  size_t size = out.size();
  return context != nullptr && EVP_PKEY_derive_init(context.get()) > 0 &&
         EVP_PKEY_CTX_set_hkdf_md(context.get(), EVP_sha256()) > 0 &&
         EVP_PKEY_CTX_set1_hkdf_key(context.get(),
                                    reinterpret_cast<const uint8_t*>(secret.data()),
                                    static_cast<int>(secret.size())) > 0 &&
         EVP_PKEY_CTX_add1_hkdf_info(context.get(),
                                     reinterpret_cast<const uint8_t*>(info.data()),
                                     static_cast<int>(info.size())) > 0 &&
         EVP_PKEY_derive(context.get(), out.data(), &size) > 0 && size == out.size();
}

// The private number of the authority: uniform in [1, order), by rejection.
Bignum AuthorityScalar(std::string_view secret, const EC_GROUP* group) {
  for (uint8_t attempt = 0; attempt < kAttemptsMax; ++attempt) {
    std::array<uint8_t, kScalarBytes> bytes{};
    if (!Derive(secret, attempt, bytes)) {
      return nullptr;
    }
    Bignum scalar(BN_secure_new());
    if (scalar == nullptr || BN_bin2bn(bytes.data(), bytes.size(), scalar.get()) == nullptr) {
      return nullptr;
    }
    OPENSSL_cleanse(bytes.data(), bytes.size());
    BN_set_flags(scalar.get(), BN_FLG_CONSTTIME);
    if (!BN_is_zero(scalar.get()) && BN_cmp(scalar.get(), EC_GROUP_get0_order(group)) < 0) {
      return scalar;
    }
  }
  return nullptr;
}

Key KeyFromScalar(const EC_GROUP* group, const BIGNUM* scalar) {
  const Point point(EC_POINT_new(group));
  std::array<uint8_t, kPublicKeyBytes> encoded{};
  if (point == nullptr ||
      EC_POINT_mul(group, point.get(), scalar, nullptr, nullptr, nullptr) != 1 ||
      EC_POINT_point2oct(group,
                         point.get(),
                         POINT_CONVERSION_UNCOMPRESSED,
                         encoded.data(),
                         encoded.size(),
                         nullptr) != encoded.size()) {
    return nullptr;
  }
  const ParamBuilder builder(OSSL_PARAM_BLD_new());
  if (builder == nullptr ||
      OSSL_PARAM_BLD_push_utf8_string(
          builder.get(), OSSL_PKEY_PARAM_GROUP_NAME, SN_X9_62_prime256v1, 0) != 1 ||
      OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_PRIV_KEY, scalar) != 1 ||
      OSSL_PARAM_BLD_push_octet_string(
          builder.get(), OSSL_PKEY_PARAM_PUB_KEY, encoded.data(), encoded.size()) != 1) {
    return nullptr;
  }
  const Params params(OSSL_PARAM_BLD_to_param(builder.get()));
  const KeyContext context(EVP_PKEY_CTX_new_from_name(nullptr, "EC", nullptr));
  EVP_PKEY* key = nullptr;
  if (params == nullptr || context == nullptr || EVP_PKEY_fromdata_init(context.get()) != 1 ||
      EVP_PKEY_fromdata(context.get(), &key, EVP_PKEY_KEYPAIR, params.get()) != 1) {
    return nullptr;
  }
  return Key(key);
}

Result<Key> AuthorityKey(std::string_view secret) {
  const Group group(EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1));
  if (group == nullptr) {
    return Failure("P-256");
  }
  const Bignum scalar = AuthorityScalar(secret, group.get());
  if (scalar == nullptr) {
    return Failure("the authority's number");
  }
  Key key = KeyFromScalar(group.get(), scalar.get());
  if (key == nullptr) {
    return Failure("the authority's key");
  }
  return key;
}

bool SetNames(X509* certificate, const char* subject) {
  const auto set = [](X509_NAME* name, const char* text) {
    return X509_NAME_add_entry_by_txt(
               name, "CN", MBSTRING_ASC, reinterpret_cast<const uint8_t*>(text), -1, -1, 0) == 1;
  };
  return set(X509_get_subject_name(certificate), subject) &&
         set(X509_get_issuer_name(certificate), kAuthorityName);
}

bool SetValidity(X509* certificate) {
  return ASN1_TIME_set_string_X509(X509_getm_notBefore(certificate), kNotBefore) == 1 &&
         ASN1_TIME_set_string_X509(X509_getm_notAfter(certificate), kNotAfter) == 1;
}

bool SetSerial(X509* certificate, const std::array<uint8_t, kSerialBytes>& bytes) {
  const Bignum number(BN_bin2bn(bytes.data(), bytes.size(), nullptr));
  return number != nullptr &&
         BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) != nullptr;
}

bool AddExtension(X509* certificate, int kind, const char* value) {
  const Extension extension(X509V3_EXT_conf_nid(nullptr, nullptr, kind, value));
  return extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1;
}

Certificate NewCertificate(const char* subject,
                           EVP_PKEY* key,
                           const std::array<uint8_t, kSerialBytes>& serial) {
  Certificate certificate(X509_new());
  if (certificate == nullptr || X509_set_version(certificate.get(), X509_VERSION_3) != 1 ||
      !SetSerial(certificate.get(), serial) || !SetNames(certificate.get(), subject) ||
      !SetValidity(certificate.get()) || X509_set_pubkey(certificate.get(), key) != 1) {
    return nullptr;
  }
  return certificate;
}

// `write` is one of the PEM_write_bio_ functions.
template <class Write>
Result<std::string> ToPem(const char* what, Write write) {
  const Bytes bytes(BIO_new(BIO_s_secmem()));
  if (bytes == nullptr || write(bytes.get()) != 1) {
    return Failure(what);
  }
  char* data = nullptr;
  const long size = BIO_get_mem_data(bytes.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

Result<std::string> CertificatePem(X509* certificate) {
  return ToPem("certificate as PEM",
               [certificate](BIO* out) { return PEM_write_bio_X509(out, certificate); });
}

}  // namespace

Result<std::string> JobAuthority(std::string_view secret) {
  Result<Key> key = AuthorityKey(secret);
  if (!key.ok()) {
    return key.status();
  }
  std::array<uint8_t, kSerialBytes> serial{};
  serial.back() = 1;
  const Certificate certificate = NewCertificate(kAuthorityName, key.value().get(), serial);
  if (certificate == nullptr ||
      !AddExtension(certificate.get(), NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
      !AddExtension(certificate.get(), NID_key_usage, "critical,keyCertSign") ||
      X509_sign(certificate.get(), key.value().get(), EVP_sha256()) == 0) {
    return Failure("the authority");
  }
  return CertificatePem(certificate.get());
}

Result<ServerIdentity> MakeServerIdentity(std::string_view secret) {
  Result<Key> authority = AuthorityKey(secret);
  if (!authority.ok()) {
    return authority.status();
  }
  const Key key(EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", SN_X9_62_prime256v1));
  std::array<uint8_t, kSerialBytes> serial{};
  if (key == nullptr || RAND_bytes(serial.data(), serial.size()) != 1) {
    return Failure("the driver's key");
  }
  serial.front() &= 0x7F;  // Positive.
  const Certificate certificate = NewCertificate(kDriverName, key.get(), serial);
  const std::string name = std::string("DNS:") + kDriverName;
  if (certificate == nullptr ||
      !AddExtension(certificate.get(), NID_basic_constraints, "critical,CA:FALSE") ||
      !AddExtension(certificate.get(), NID_key_usage, "critical,digitalSignature") ||
      !AddExtension(certificate.get(), NID_ext_key_usage, "serverAuth") ||
      !AddExtension(certificate.get(), NID_subject_alt_name, name.c_str()) ||
      X509_sign(certificate.get(), authority.value().get(), EVP_sha256()) == 0) {
    return Failure("the driver's certificate");
  }
  Result<std::string> certificate_pem = CertificatePem(certificate.get());
  Result<std::string> key_pem = ToPem("key as PEM", [&key](BIO* out) {
    return PEM_write_bio_PrivateKey(out, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
  if (!certificate_pem.ok() || !key_pem.ok()) {
    return certificate_pem.ok() ? key_pem.status() : certificate_pem.status();
  }
  return ServerIdentity{std::move(certificate_pem).value(), std::move(key_pem).value()};
}

}  // namespace muster::launcher
