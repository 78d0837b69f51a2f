#pragma once

// GlooBackend: Gloo's algorithms over our own sockets. See backend.h for the contract.

#include <memory>
#include <vector>

#include "worker/collective/backend.h"
#include "worker/collective/peer_mesh.h"

namespace muster::worker {

/// `sockets`: connected and authenticated, by rank, none at `rank`.
std::unique_ptr<Backend> MakeGlooBackend(int rank, std::vector<PrivateFd> sockets);

}  // namespace muster::worker
