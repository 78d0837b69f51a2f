#pragma once

// RunCollective: one logged operation on one backend, with scaling, averaging and the allocation of
// results. It decides nothing about order, names or errors of the world.
//
// Threads: the executor's.

#include <cstdint>
#include <exception>
#include <vector>

#include "worker/collective/backend.h"
#include "worker/runtime.h"

namespace muster::worker {

struct Outcome {
  Status status;                 // What the backend met.
  std::exception_ptr own_error;  // What the caller's Allocate threw; the other ranks go on.
};

/// `first_dims`: an allgather's, by rank.
Outcome RunCollective(Backend& backend,
                      int size,
                      const Submission& submission,
                      const std::vector<int64_t>& first_dims,
                      Backend::Timeout timeout);

}  // namespace muster::worker
