#pragma once

// Gloo's transport interface over a PeerMesh, so that Gloo's algorithms run on sockets that we
// connect, authenticate and can abort. Only what the algorithms with unbound buffers use exists:
// pairs are names of peers, and there are no addresses or devices, because our links are up before
// Gloo is asked.
//
// Threads: as PeerMesh. Errors leave as MeshError, through Gloo's code, to the backend.

#include <gloo/context.h>
#include <gloo/transport/context.h>
#include <gloo/transport/unbound_buffer.h>

#include <memory>
#include <stdexcept>

#include "worker/collective/peer_mesh.h"

namespace muster::worker {

struct MeshError : std::runtime_error {
  explicit MeshError(Status why) : std::runtime_error(why.message()), status(std::move(why)) {}
  Status status;
};

/// What Gloo's algorithms take. `mesh` outlives it.
class GlooContext final : public gloo::Context {
 public:
  explicit GlooContext(PeerMesh& mesh);
};

}  // namespace muster::worker
