#pragma once

// Operations that only move bytes over a PeerMesh, each byte straight from its owner's memory to
// its place. Each member talks to each other at once, so the gather is for groups of moderate size.
//
// Threads: as PeerMesh. Errors leave as MeshError.

#include <cstddef>
#include <span>

#include "worker/collective/group_links.h"

namespace muster::worker {

/// As Backend::Allgatherv.
void MeshAllgatherv(const GroupLinks& links,
                    const void* in,
                    void* out,
                    std::span<const size_t> byte_counts);

/// As Backend::Alltoallv.
void MeshAlltoallv(const GroupLinks& links,
                   const void* in,
                   std::span<const size_t> send_bytes,
                   void* out,
                   std::span<const size_t> receive_bytes);

/// As Backend::Broadcast, along a chain of all members, in segments: for what is large against the
/// number of members.
void MeshBroadcastChain(const GroupLinks& links, void* inout, size_t bytes, int root);

}  // namespace muster::worker
