#pragma once

// Whether the calls that all ranks made under one name fit together, and if not, why in words.
// Pure functions.

#include <cstdint>
#include <string>
#include <vector>

#include "worker/core/log_types.h"

namespace muster::worker {

struct CallGroup {
  const Signature* signature;
  const std::vector<uint32_t>* ranks;
};

/// Empty: the calls fit. `groups` has every rank once, and no two equal signatures. An allgather's
/// first dimension has been set to zero in the signatures.
std::string FindMismatch(const std::string& name,
                         const std::vector<CallGroup>& groups,
                         uint32_t world_size);

/// Why no rank may make this call, whatever the others do; empty: it is in order.
std::string FindFault(const Signature& signature, uint32_t world_size);

/// "rank 3", "ranks 0, 1 and 5", cut short after eight.
std::string RankList(const std::vector<uint32_t>& ranks);

}  // namespace muster::worker
