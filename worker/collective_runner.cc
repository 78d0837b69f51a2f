#include "worker/collective_runner.h"

#include <cstdlib>
#include <new>
#include <span>
#include <utility>

#include "common/check.h"
#include "worker/collective/reduce.h"
#include "worker/core/dtype.h"

namespace muster::worker {
namespace {

using Timeout = Backend::Timeout;

/// An allreduce, resolved: average is a sum with a factor behind it.
struct Allreduce {
  Backend& backend;
  const Submission& call;
  size_t count;
  int size;
  Timeout timeout;

  bool averages() const { return call.op == Op::kAverage; }
  Op reduction() const { return averages() ? Op::kSum : call.op; }
  double factor() const { return averages() ? call.postscale / size : call.postscale; }

  Status Sum(DType dtype, const void* in, void* out) const {
    return backend.Allreduce(in, out, {dtype, count, reduction()}, timeout);
  }
};

Status RunPlain(const Allreduce& op) {
  const DType dtype = op.call.in.dtype;
  const void* in = op.call.in.data;
  void* out = op.call.out.data;
  if (op.call.prescale != 1) {
    Scale(dtype, out, in, op.count, op.call.prescale);
    in = out;
  }
  Status status = op.Sum(dtype, in, out);
  if (status.ok() && op.factor() != 1) {
    Scale(dtype, out, out, op.count, op.factor());
  }
  return status;
}

// Scaled and averaged in float: a sum may be beyond the range of 16 bits where the average is not.
Status RunHalf(const Allreduce& op) {
  std::vector<float> wide(op.count);
  WidenFloats(op.call.in.dtype, wide.data(), op.call.in.data, op.count);
  if (op.call.prescale != 1) {
    Scale(DType::kF32, wide.data(), wide.data(), op.count, op.call.prescale);
  }
  Status status = op.Sum(DType::kF32, wide.data(), wide.data());
  if (status.ok()) {
    if (op.factor() != 1) {
      Scale(DType::kF32, wide.data(), wide.data(), op.count, op.factor());
    }
    NarrowFloats(op.call.in.dtype, op.call.out.data, wide.data(), op.count);
  }
  return status;
}

/// (size * quotients + remainders) / size, truncated toward zero.
void DivideExactly(int64_t* quotients, const int64_t* remainders, size_t count, int size) {
  for (size_t i = 0; i < count; ++i) {
    const int64_t whole = quotients[i] + remainders[i] / size;
    const int64_t rest = remainders[i] % size;
    const int64_t correction = (whole > 0 && rest < 0) ? -1 : (whole < 0 && rest > 0) ? 1 : 0;
    quotients[i] = whole + correction;
  }
}

// The sum of 64-bit integers may not fit 64 bits where their average does: quotients and
// remainders are summed apart.
Status AverageWide(const Allreduce& op, int64_t* values) {
  std::vector<int64_t> remainders(op.count);
  for (size_t i = 0; i < op.count; ++i) {
    remainders[i] = values[i] % op.size;
    values[i] /= op.size;
  }
  Status status = op.Sum(DType::kI64, values, values);
  if (status.ok()) {
    status = op.Sum(DType::kI64, remainders.data(), remainders.data());
  }
  if (status.ok()) {
    DivideExactly(values, remainders.data(), op.count, op.size);
  }
  return status;
}

Status RunIntegerAverage(const Allreduce& op) {
  const DType dtype = op.call.in.dtype;
  const void* in = op.call.in.data;
  if (op.call.prescale != 1) {
    Scale(dtype, op.call.out.data, in, op.count, op.call.prescale);
    in = op.call.out.data;
  }
  std::vector<int64_t> wide(op.count);
  WidenIntegers(dtype, wide.data(), in, op.count);
  Status status;
  if (dtype == DType::kI64 && op.call.postscale == 1) {
    status = AverageWide(op, wide.data());
  } else {
    status = op.Sum(DType::kI64, wide.data(), wide.data());
    if (op.call.postscale != 1) {
      Scale(DType::kI64, wide.data(), wide.data(), op.count, op.factor());
    } else {
      for (int64_t& value : wide) {
        value /= op.size;
      }
    }
  }
  if (status.ok()) {
    NarrowIntegers(dtype, op.call.out.data, wide.data(), op.count);
  }
  return status;
}

Status RunAllreduce(const Allreduce& op) {
  const DType dtype = op.call.in.dtype;
  const bool scales = op.call.prescale != 1 || op.factor() != 1;
  if ((dtype == DType::kF16 || dtype == DType::kBF16) && scales) {
    return RunHalf(op);
  }
  if (op.averages() && !IsFloating(dtype)) {
    return RunIntegerAverage(op);
  }
  return RunPlain(op);
}

/// Asks the caller for the result's memory. Where that fails, memory of our own takes part in its
/// place, so that the other ranks do not wait for this one.
class ResultMemory {
 public:
  ResultMemory(const Submission& call, const Shape& shape, size_t bytes) {
    try {
      data_ = call.allocate(shape, call.in.dtype, call.in.device);
      if (data_ == nullptr && bytes > 0) {
        throw Error("no memory was given for the result of '" + call.name + "'");
      }
    } catch (...) {  // Whatever the caller threw goes back to the caller.
      error_ = std::current_exception();
      own_.resize(bytes);
      data_ = own_.data();
    }
  }
  void* data() const { return data_; }
  std::exception_ptr error() const { return error_; }

 private:
  void* data_ = nullptr;
  std::vector<char> own_;
  std::exception_ptr error_;
};

Outcome RunAllgather(Backend& backend,
                     const Submission& call,
                     const std::vector<int64_t>& first_dims,
                     Timeout timeout) {
  Shape shape = call.in.shape;
  shape.front() = 1;
  const size_t row_bytes = static_cast<size_t>(ElementCount(shape, call.in.dtype).value_or(0)) *
                           ElementSize(call.in.dtype);
  shape.front() = 0;
  std::vector<size_t> byte_counts;
  size_t bytes = 0;
  for (const int64_t rows : first_dims) {
    shape.front() += rows;
    byte_counts.push_back(static_cast<size_t>(rows) * row_bytes);
    bytes += byte_counts.back();
  }
  const ResultMemory result(call, shape, bytes);
  if (bytes == 0) {
    return {Status::Ok(), result.error()};
  }
  return {backend.Allgatherv(call.in.data, result.data(), byte_counts, timeout), result.error()};
}

Outcome Run(Backend& backend,
            int size,
            const Submission& call,
            const std::vector<int64_t>& first_dims,
            Timeout timeout) {
  const auto count = static_cast<size_t>(ElementCount(call.in.shape, call.in.dtype).value_or(0));
  switch (call.kind) {
    case OpKind::kAllreduce:
      return {RunAllreduce({backend, call, count, size, timeout}), nullptr};
    case OpKind::kAllgather:
      return RunAllgather(backend, call, first_dims, timeout);
    case OpKind::kBroadcast:
      return {
          backend.Broadcast(call.in.data, count * ElementSize(call.in.dtype), call.root, timeout),
          nullptr};
    case OpKind::kBarrier:
    case OpKind::kAgreement:
      break;
  }
  MUSTER_CHECK(false, "an operation that moves data");
  return {};
}

}  // namespace

Outcome RunCollective(Backend& backend,
                      int size,
                      const Submission& submission,
                      const std::vector<int64_t>& first_dims,
                      Timeout timeout) {
  try {
    return Run(backend, size, submission, first_dims, timeout);
  } catch (const std::bad_alloc&) {
    return {Status::Failed("no memory is left for '" + submission.name + "'"), nullptr};
  }
}

}  // namespace muster::worker
