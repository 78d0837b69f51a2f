// x86-64 with AVX2 and F16C, which came together but for what a virtual machine hides.

#define MUSTER_LEVEL_NAMESPACE avx2
#define MUSTER_LEVEL_TABLE kAvx2Kernels
#define MUSTER_VECTOR_BYTES 32
#include "kernels/level_kernels.h"
