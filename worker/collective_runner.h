#pragma once

// RunJob: what one Execute entry of the log asks this rank to do, on one backend: it finds the
// buffers, allocates results and names the pieces. It decides nothing about order, names or errors
// of the world, and computes nothing but Adasum.
//
// Threads: the one that drives the session.

#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "worker/call.h"
#include "worker/collective/backend.h"
#include "worker/core/log_types.h"

namespace muster::worker {

struct JobItem {
  std::shared_ptr<Call> call;  // Null: this rank has joined, and takes part with zeros.
  Signature zeros;             // Of which kind, if `call` is null.
  std::vector<int64_t> dims;   // As in Item.
};

/// Several allreduces are one fused operation, several others follow each other.
struct Job {
  std::shared_ptr<const Group> group;  // Shared with later jobs on the set.
  uint64_t number = 0;                 // Of the first item; each has one.
  std::vector<JobItem> items;
};

struct JobOutcome {
  Status status;  // What the backend met.
  /// By item, what the caller's Allocate threw; the other ranks go on.
  std::vector<std::exception_ptr> own_errors;
};

JobOutcome RunJob(Backend& backend, const Job& job, std::chrono::milliseconds timeout);

}  // namespace muster::worker
