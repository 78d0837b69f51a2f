#include "kernels/reduce.h"

#include <cstdio>
#include <cstdlib>

#include "kernels/levels.h"

namespace muster::kernels {
namespace {

[[noreturn]] void Refuse(const char* what) {
  std::fprintf(stderr, "muster: internal error: %s\n", what);
  std::abort();
}

void Check(const ReducePlan& plan) {
  if (plan.op == ReduceOp::kAdasum) {
    Refuse("Adasum is no reduction by elements");
  }
  if (plan.op == ReduceOp::kAverage && plan.type == Element::kBool) {
    Refuse("booleans have no average");
  }
  if (plan.op == ReduceOp::kAverage && plan.divisor < 1) {
    Refuse("the divisor of an average is below 1");
  }
}

bool IsFloat(Element type) {
  return type >= Element::kF16 && type <= Element::kF64;
}

}  // namespace

size_t AccumulatorSize(const ReducePlan& plan) {
  switch (plan.type) {
    case Element::kF16:
    case Element::kBF16:
      return sizeof(float);
    case Element::kF32:
    case Element::kF64:
    case Element::kBool:
      return SizeOf(plan.type);
    case Element::kI64:
      return plan.op == ReduceOp::kAverage ? 16 : 8;
    default:
      return plan.op == ReduceOp::kAverage ? 8 : SizeOf(plan.type);
  }
}

bool IsDirect(const ReducePlan& plan) {
  if (plan.prescale != 1 || plan.type == Element::kBool) {
    return false;
  }
  if (plan.op == ReduceOp::kAverage) {
    return IsFloat(plan.type) && AccumulatorSize(plan) == SizeOf(plan.type) &&
           plan.postscale / plan.divisor == 1;
  }
  return plan.postscale == 1 && AccumulatorSize(plan) == SizeOf(plan.type);
}

void ReduceMany(const ReducePlan& plan,
                const void* const* inputs,
                size_t input_count,
                void* out,
                size_t count) {
  Check(plan);
  if (input_count == 0) {
    Refuse("a reduction of no inputs");
  }
  if (count > 0) {
    ActiveKernels().reduce_many(plan, inputs, input_count, out, count);
  }
}

void Widen(const ReducePlan& plan, const void* in, void* accumulators, size_t count) {
  Check(plan);
  if (count > 0) {
    ActiveKernels().widen(plan, in, accumulators, count);
  }
}

void Combine(const ReducePlan& plan, void* out, const void* a, const void* b, size_t count) {
  Check(plan);
  if (count > 0) {
    ActiveKernels().combine(plan, out, a, b, count);
  }
}

void Narrow(const ReducePlan& plan, const void* accumulators, void* out, size_t count) {
  Check(plan);
  if (count > 0) {
    ActiveKernels().narrow(plan, accumulators, out, count);
  }
}

void AdasumCombine(Element type, void* out, const void* a, const void* b, size_t count) {
  if (!IsFloat(type)) {
    Refuse("Adasum is for floats");
  }
  if (count > 0) {
    ActiveKernels().adasum_combine(type, out, a, b, count);
  }
}

}  // namespace muster::kernels
