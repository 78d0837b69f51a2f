// The level that every machine can run: 16 bytes are the vectors of SSE2 and of NEON.

#define MUSTER_LEVEL_NAMESPACE baseline
#define MUSTER_VECTOR_BYTES 16
#include "kernels/level_kernels.h"

namespace muster::kernels {

const LevelKernels& BaselineKernels() {
  return baseline::kTable;
}

}  // namespace muster::kernels
