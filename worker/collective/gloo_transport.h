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

#include "worker/collective/backend.h"
#include "worker/collective/peer_mesh.h"

namespace muster::worker {

/// What Gloo's algorithms take: the members of one group, by their index in it.
class GlooContext final : public gloo::Context {
 public:
  /// `mesh` outlives it.
  GlooContext(PeerMesh& mesh, const Group& group);

  /// Ends every wait of the operation that comes next. Gloo's own time limit is not used: it
  /// would begin anew with each message.
  void SetDeadline(PeerMesh::Deadline deadline);

 private:
  PeerMesh::Deadline deadline_;
};

}  // namespace muster::worker
