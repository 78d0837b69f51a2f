#pragma once

// The memory that the workers of one agent share in one generation, and how they get it.
//
// A worker sends a SegmentRequest to the agent's `page.sock` (common/worker_page.h), and the agent
// answers one PageAnswer, with the memfd as SCM_RIGHTS if `error` is empty. The agent makes the
// segment at the first request of its newest generation, with all its pages allocated (no SIGBUS
// later), sealed against shrinking and growing, and zeroed; it forgets it when a newer generation
// is ordered. It never reads it. Nothing of an old generation can write into a new one, because
// each has its own memory.
//
// Layout: SegmentHeader, padded to a page; then one control area per member, in order of local
// rank (worker/shm/); then one data area per member.

#include <cstddef>
#include <cstdint>

namespace muster {

struct SegmentRequest {
  char magic[8] = {'M', 'U', 'S', 'T', 'S', 'E', 'G', '1'};
  uint64_t incarnation = 0;
  char key[64] = {};  // MUSTER_WORKER_KEY, as in PageRequest.
  uint64_t generation = 0;
};

inline constexpr size_t kSegmentHeaderBytes = 4096;
/// Of each member: its bell, its marks and its two control rings.
inline constexpr size_t kSegmentControlBytes = 4096 + 2 * (128u << 10);
/// Of each member: what the shared-memory backend moves data through.
inline constexpr size_t kSegmentDataBytes = 2u << 20;

inline constexpr size_t SegmentBytes(size_t members) {
  return kSegmentHeaderBytes + members * (kSegmentControlBytes + kSegmentDataBytes);
}

}  // namespace muster
