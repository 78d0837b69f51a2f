#pragma once

// What the environment says about collectives: the size of fusion, ids, the backend, and the cores
// of the runtime's own threads. `muster run` has checked what came through its flags; what was set
// by hand is checked here.
//
// Threads: ReadCollectiveOptions in init(), before there are other threads; ApplyThreadAffinity in
// the thread that it pins.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "common/status.h"

namespace muster::worker {

enum class BackendChoice : uint8_t {
  kAuto,          // What suits the world.
  kShm,           // Shared memory; all workers have to be on one host.
  kHierarchical,  // Shared memory inside each host, Gloo between one leader per host.
  kGloo,          // Gloo between all.
};

struct CollectiveOptions {
  /// HOROVOD_FUSION_THRESHOLD; 0: each tensor alone.
  size_t fusion_bytes = size_t{128} << 20;
  /// HOROVOD_CACHE_CAPACITY; 0: tensors have no ids.
  uint32_t cache_capacity = 65'536;
  /// MUSTER_CPU_OPERATIONS. Not HOROVOD_CPU_OPERATIONS, which horovodrun sets to gloo whenever its
  /// controller is Gloo: `muster run` passes on what the user meant by it.
  BackendChoice backend = BackendChoice::kAuto;
  /// HOROVOD_THREAD_AFFINITY: a core for each local rank. What is no core is -1 here; whether that
  /// matters is known only in a world.
  std::vector<int> affinity;
};

/// kInvalid, with the variable and its value, if a number or a name is wrong.
Result<CollectiveOptions> ReadCollectiveOptions();

/// Pins the calling thread to cores[local_rank]. Call it in every world: local ranks change.
/// If the list is too short for the host, or names a core that is not there, no thread is pinned
/// (one that was gets back what it had) and the error says why; one worker of the host logs it as a
/// warning, once. An empty list changes nothing.
Status ApplyThreadAffinity(std::span<const int> cores, int local_rank, int local_size);

}  // namespace muster::worker
