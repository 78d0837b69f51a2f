#pragma once

// TlsPeer: a server in the test's own process that takes one connection and keeps every byte that
// the client sends: as it came over the wire and, if the handshake succeeds, as it was meant. It
// speaks OpenSSL and not gRPC, so that nothing of gRPC's judges what was sent.
//
// Threads: one of its own, joined by Finish or the destructor; waits end after ten seconds.

#include <cstdint>
#include <optional>
#include <string>
#include <thread>

#include "common/unique_fd.h"
#include "launcher/security/job_certificate.h"

namespace muster::launcher {

class TlsPeer {
 public:
  struct Seen {
    std::string wire;   // All bytes from the client.
    std::string clear;  // What was in them, once the handshake was over.
    bool shaken = false;
  };

  /// Without an identity it reads and never answers.
  explicit TlsPeer(std::optional<ServerIdentity> identity);
  ~TlsPeer();
  TlsPeer(const TlsPeer&) = delete;
  TlsPeer& operator=(const TlsPeer&) = delete;

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  /// Waits until the client has closed or is silent for long.
  Seen Finish();

 private:
  void Serve();

  const std::optional<ServerIdentity> identity_;
  UniqueFd listener_;
  uint16_t port_ = 0;
  Seen seen_;
  std::thread thread_;
};

}  // namespace muster::launcher
