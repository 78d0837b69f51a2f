// x86-64 with AVX2 and F16C, which came together but for what a virtual machine hides.

#define MUSTER_LEVEL_NAMESPACE avx2
#define MUSTER_VECTOR_BYTES 32
#include "kernels/level_kernels.h"

namespace muster::kernels {

const LevelKernels& Avx2Kernels() {
  return avx2::kTable;
}

}  // namespace muster::kernels
