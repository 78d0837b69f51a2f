#pragma once

// GrpcListener: takes the connections of one gRPC server on the driver's loop and hands them to it,
// within a bound: whoever connects cannot use up the descriptors that the driver needs for pipes,
// processes and discovery. gRPC's own listener (1.51) has no bound, and once accept() has failed
// for want of descriptors it never accepts again.
//
// What a connection may do, and for how long without a handshake, is the server's matter.
//
// Threads: the loop's, or before the loop runs.

#include <grpcpp/server_builder.h>

#include <cstdint>
#include <memory>

#include "common/loop.h"
#include "common/unique_fd.h"

namespace muster::launcher {

class GrpcListener {
 public:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

  /// `listener` is a listening, non-blocking socket; `acceptor` belongs to a server that has been
  /// started. `loop` outlives it.
  GrpcListener(Loop& loop, UniqueFd listener, std::unique_ptr<Acceptor> acceptor);
  ~GrpcListener();
  GrpcListener(const GrpcListener&) = delete;
  GrpcListener& operator=(const GrpcListener&) = delete;

  /// With this limit of open files, connections get descriptors below the number; others are closed
  /// at once. The kernel gives the lowest that is free, so the rest stays free for the driver.
  static int FirstReserved(uint64_t open_files);

 private:
  void OnListener();
  /// False: nobody is there, or nobody can be let in now.
  bool AcceptOne();
  void Pause();

  Loop& loop_;
  const UniqueFd listener_;
  const std::unique_ptr<Acceptor> acceptor_;
  Loop::TimerId pause_;
  bool warned_ = false;
};

}  // namespace muster::launcher
