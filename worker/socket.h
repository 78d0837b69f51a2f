#pragma once

// TCP sockets of the worker: non-blocking, close-on-exec, without Nagle's delay, and closed in
// forked children. Addresses are literals (common/address.h).
//
// Stateless except for the registry of descriptors that forked children close: any thread.

#include <sys/types.h>

#include <string>
#include <utility>

#include "common/address.h"
#include "common/network.h"
#include "common/status.h"

namespace muster::worker {

/// A descriptor that a forked child closes at once: a socket that lived on in a data loader would
/// hide the death of this process from its peers.
class PrivateFd {
 public:
  PrivateFd() = default;
  explicit PrivateFd(int fd);
  PrivateFd(PrivateFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  PrivateFd& operator=(PrivateFd&& other) noexcept;
  ~PrivateFd() { Reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void Reset();

 private:
  int fd_ = -1;
};

/// When the socket is closed, what the peer has not received yet is taken back. A peer that is cut
/// off would get it when the cut has healed, and do the last operation of a generation that is
/// over.
void DiscardUnreceived(int fd);

/// Listens on the loopback interface, IPv4 or, where there is none, IPv6.
Result<PrivateFd> ListenOnLoopback(PortRange ports = {});
/// The literal of the address at which the socket is bound.
Result<std::string> LocalAddress(int fd);

/// Begins to connect; the socket turns writable when it is decided (see ConnectError). `error`
/// becomes the errno of a failure.
Result<PrivateFd> StartConnect(const SocketAddress& address, int* error = nullptr);
/// The errno of a finished connect; 0: connected.
int ConnectError(int fd);
/// The next connection; kUnavailable: none now, or `error` says why.
Result<PrivateFd> Accept(int listener, int* error = nullptr);

/// Reads or writes what goes without waiting: bytes moved, 0: nothing now, -1: closed or broken.
ssize_t ReadSome(int fd, void* data, size_t size);
ssize_t WriteSome(int fd, const void* data, size_t size);

}  // namespace muster::worker
