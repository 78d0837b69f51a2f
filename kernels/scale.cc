#include "kernels/scale.h"

#include <cstring>

#include "kernels/levels.h"

namespace muster::kernels {

size_t SizeOf(Element type) {
  switch (type) {
    case Element::kU8:
    case Element::kI8:
    case Element::kBool:
      return 1;
    case Element::kU16:
    case Element::kI16:
    case Element::kF16:
    case Element::kBF16:
      return 2;
    case Element::kI32:
    case Element::kF32:
      return 4;
    case Element::kI64:
    case Element::kF64:
      return 8;
  }
  return 0;
}

void Scale(const void* in, void* out, Element type, size_t count, double factor) {
  if (factor == 1) {
    if (in != out && count > 0) {
      std::memcpy(out, in, count * SizeOf(type));
    }
    return;
  }
  if (count > 0) {
    ActiveKernels().scale(in, out, type, count, factor);
  }
}

}  // namespace muster::kernels
