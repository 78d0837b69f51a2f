#pragma once

// Which backend moves the data of a world, and the arithmetic of what is too small for a backend.
//
// Pure functions, but for what the backends themselves do.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "worker/collective/backend.h"
#include "worker/collective_options.h"
#include "worker/core/log_types.h"
#include "worker/runtime.h"
#include "worker/shm/segment.h"
#include "worker/socket.h"

namespace muster::worker {

/// `hosts`: index of its host, by rank. `has_segment`: by rank, whether it has the memory that the
/// workers of its host share. What cannot be is not forced: without such memory Gloo is left. (That
/// shared memory alone does not reach other hosts is looked at before.)
BackendKind ChooseBackend(BackendChoice choice,
                          const std::vector<uint32_t>& hosts,
                          const std::vector<bool>& has_segment);

struct WorldBackend {
  std::unique_ptr<Backend> backend;
  const char* name = "";
};

/// `segment`: shared with the session. `sockets`: by rank, none at the own; empty for kShm.
WorldBackend MakeWorldBackend(const Place& place,
                              BackendKind kind,
                              const std::vector<uint32_t>& hosts,
                              std::shared_ptr<Segment> segment,
                              std::vector<PrivateFd> sockets);

/// A SmallReduce (worker/core/sequencer.h) over the kernels.
std::string ReduceSmall(const Signature& signature,
                        const std::vector<const std::string*>& inputs,
                        uint32_t divisor);

}  // namespace muster::worker
