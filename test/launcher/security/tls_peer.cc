#include "test/launcher/security/tls_peer.h"

#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <memory>
#include <string_view>
#include <utility>

#include "common/address.h"
#include "common/network.h"

namespace muster::launcher {
namespace {

constexpr int kSilenceMilliseconds = 10'000;
// An empty SETTINGS frame of HTTP/2: a client sends no request before it has come.
constexpr std::string_view kSettings("\0\0\0\4\0\0\0\0\0", 9);

template <class T>
using Owned = std::unique_ptr<T, void (*)(T*)>;

int ChooseHttp2(SSL* /*ssl*/,
                const uint8_t** out,
                uint8_t* out_size,
                const uint8_t* /*offered*/,
                unsigned int /*offered_size*/,
                void* /*arg*/) {
  static constexpr std::string_view kHttp2 = "h2";
  *out = reinterpret_cast<const uint8_t*>(kHttp2.data());
  *out_size = kHttp2.size();
  return SSL_TLSEXT_ERR_OK;
}

Owned<SSL_CTX> MakeContext(const ServerIdentity& identity) {
  Owned<SSL_CTX> context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  const Owned<BIO> certificate_bytes(
      BIO_new_mem_buf(identity.certificate_pem.data(),
                      static_cast<int>(identity.certificate_pem.size())),
      [](BIO* bio) { BIO_free(bio); });
  const Owned<BIO> key_bytes(
      BIO_new_mem_buf(identity.key_pem.data(), static_cast<int>(identity.key_pem.size())),
      [](BIO* bio) { BIO_free(bio); });
  const Owned<X509> certificate(
      PEM_read_bio_X509(certificate_bytes.get(), nullptr, nullptr, nullptr), X509_free);
  const Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(key_bytes.get(), nullptr, nullptr, nullptr),
                            EVP_PKEY_free);
  SSL_CTX_use_certificate(context.get(), certificate.get());
  SSL_CTX_use_PrivateKey(context.get(), key.get());
  SSL_CTX_set_alpn_select_cb(context.get(), ChooseHttp2, nullptr);
  return context;
}

// One TLS session over memory, so that whoever feeds it sees the bytes.
class Session {
 public:
  explicit Session(const ServerIdentity& identity)
      : context_(MakeContext(identity)), ssl_(SSL_new(context_.get()), SSL_free) {
    SSL_set_bio(ssl_.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_accept_state(ssl_.get());
  }

  void Feed(std::string_view bytes, TlsPeer::Seen& seen) {
    BIO_write(SSL_get_rbio(ssl_.get()), bytes.data(), static_cast<int>(bytes.size()));
    if (!seen.shaken && SSL_do_handshake(ssl_.get()) == 1) {
      seen.shaken = true;
      SSL_write(ssl_.get(), kSettings.data(), static_cast<int>(kSettings.size()));
    }
    std::array<char, 4096> buffer;
    int got = 0;
    while (seen.shaken && (got = SSL_read(ssl_.get(), buffer.data(), buffer.size())) > 0) {
      seen.clear.append(buffer.data(), static_cast<size_t>(got));
    }
  }

  std::string TakeReply() {
    std::array<char, 4096> buffer;
    std::string reply;
    int got = 0;
    while ((got = BIO_read(SSL_get_wbio(ssl_.get()), buffer.data(), buffer.size())) > 0) {
      reply.append(buffer.data(), static_cast<size_t>(got));
    }
    return reply;
  }

 private:
  Owned<SSL_CTX> context_;
  Owned<SSL> ssl_;
};

bool AwaitReadable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, kSilenceMilliseconds) == 1;
}

}  // namespace

TlsPeer::TlsPeer(std::optional<ServerIdentity> identity) : identity_(std::move(identity)) {
  listener_ = ListenInRange("127.0.0.1", {}).value();
  SocketAddress own;
  own.size = sizeof own.storage;
  REQUIRE(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&own.storage), &own.size) ==
          0);
  port_ = SplitAddress(ToLiteral(own)).value().port;
  thread_ = std::thread([this] { Serve(); });
}

TlsPeer::~TlsPeer() {
  Finish();
}

TlsPeer::Seen TlsPeer::Finish() {
  if (thread_.joinable()) {
    thread_.join();
  }
  return seen_;
}

// Ends when the client closes or says nothing more for long.
void TlsPeer::Serve() {
  if (!AwaitReadable(listener_.get())) {
    return;
  }
  const UniqueFd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  std::optional<Session> session;
  if (identity_) {
    session.emplace(*identity_);
  }
  std::array<char, 4096> buffer;
  while (AwaitReadable(client.get())) {
    const ssize_t got = ::recv(client.get(), buffer.data(), buffer.size(), 0);
    if (got <= 0) {
      return;
    }
    const std::string_view bytes(buffer.data(), static_cast<size_t>(got));
    seen_.wire += bytes;
    if (session) {
      session->Feed(bytes, seen_);
      const std::string reply = session->TakeReply();
      ::send(client.get(), reply.data(), reply.size(), MSG_NOSIGNAL);
    }
  }
}

}  // namespace muster::launcher
