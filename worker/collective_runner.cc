#include "worker/collective_runner.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "common/check.h"
#include "kernels/reduce.h"
#include "worker/collective/reduction_plan.h"
#include "worker/core/dtype.h"

namespace muster::worker {
namespace {

/// Elements per row of the first dimension.
size_t RowElements(const Tensor& tensor) {
  Shape row = tensor.shape;
  row.front() = 1;
  return static_cast<size_t>(ElementCount(row, tensor.dtype).value_or(0));
}

size_t CountOf(const Shape& shape, DType dtype) {
  return static_cast<size_t>(ElementCount(shape, dtype).value_or(0));
}

/// Asks the caller for the result's memory. Where that fails, memory of our own takes part in its
/// place, so that the other ranks do not wait for this one.
class ResultMemory {
 public:
  ResultMemory(const Submission& call, int64_t rows, size_t bytes) {
    Shape shape = call.in.shape;
    shape.front() = rows;
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

/// One item on its way.
struct Run {
  Backend& backend;
  const Job& job;
  std::chrono::milliseconds timeout;
  std::exception_ptr* own_error;

  OpContext Context(size_t item) const {
    return {*job.group, job.number + item, std::chrono::steady_clock::now() + timeout};
  }
  size_t self() const { return static_cast<size_t>(job.group->self); }
  size_t size() const { return job.group->ranks.size(); }
};

// ---------------------------------------------------------------- allreduce

Status RunAllreduce(const Run& run) {
  std::vector<Piece> pieces;
  pieces.reserve(run.job.items.size());
  for (const JobItem& item : run.job.items) {
    const Signature& signature = item.call ? item.call->signature() : item.zeros;
    const size_t count = CountOf(signature.shape, signature.dtype);
    const void* in = item.call ? item.call->submission().in.data : nullptr;
    void* out = item.call ? item.call->submission().out.data : nullptr;
    pieces.push_back({in, out, count});
  }
  const JobItem& first = run.job.items.front();
  const Reduction what =
      ReductionOf(first.call ? first.call->signature() : first.zeros, run.size());
  return run.backend.Allreduce(run.Context(0), pieces, what);
}

// Everybody gets all vectors and combines them in the same order: neighbours, then neighbours of
// neighbours, as the recursive doubling of the paper does. It takes as much memory as all vectors.
Status RunAdasum(const Run& run, const Submission& call) {
  const size_t count = CountOf(call.in.shape, call.in.dtype);
  const size_t bytes = count * ElementSize(call.in.dtype);
  if (bytes == 0) {
    return run.backend.Barrier(run.Context(0));
  }
  std::vector<char> all(bytes * run.size());
  const std::vector<size_t> byte_counts(run.size(), bytes);
  Status status = run.backend.Allgatherv(run.Context(0), call.in.data, all.data(), byte_counts);
  if (!status.ok()) {
    return status;
  }
  for (size_t distance = 1; distance < run.size(); distance *= 2) {
    for (size_t i = 0; i + distance < run.size(); i += 2 * distance) {
      char* left = all.data() + i * bytes;
      kernels::AdasumCombine(
          static_cast<kernels::Element>(call.in.dtype), left, left, left + distance * bytes, count);
    }
  }
  std::memcpy(call.out.data, all.data(), bytes);
  return status;
}

// ---------------------------------------------------------------- results of a late size

Status RunAllgather(const Run& run, size_t index, const Submission& call) {
  const std::vector<int64_t>& rows = run.job.items[index].dims;
  const size_t row_bytes = RowElements(call.in) * ElementSize(call.in.dtype);
  std::vector<size_t> byte_counts;
  for (const int64_t count : rows) {
    byte_counts.push_back(static_cast<size_t>(count) * row_bytes);
  }
  const size_t bytes = std::accumulate(byte_counts.begin(), byte_counts.end(), size_t{0});
  const ResultMemory result(call, std::accumulate(rows.begin(), rows.end(), int64_t{0}), bytes);
  *run.own_error = result.error();
  return run.backend.Allgatherv(run.Context(index), call.in.data, result.data(), byte_counts);
}

Status RunAlltoall(const Run& run, size_t index, const Submission& call) {
  const std::vector<int64_t>& splits = run.job.items[index].dims;  // A row per member.
  const size_t row_bytes = RowElements(call.in) * ElementSize(call.in.dtype);
  std::vector<size_t> send;
  std::vector<size_t> receive;
  std::vector<int64_t> received_splits;
  for (size_t member = 0; member < run.size(); ++member) {
    send.push_back(static_cast<size_t>(splits[run.self() * run.size() + member]) * row_bytes);
    received_splits.push_back(splits[member * run.size() + run.self()]);
    receive.push_back(static_cast<size_t>(received_splits.back()) * row_bytes);
  }
  const ResultMemory result(
      call,
      std::accumulate(received_splits.begin(), received_splits.end(), int64_t{0}),
      std::accumulate(receive.begin(), receive.end(), size_t{0}));
  *run.own_error = result.error();
  if (call.received_splits != nullptr) {
    *call.received_splits = std::move(received_splits);
  }
  return run.backend.Alltoallv(run.Context(index), call.in.data, send, result.data(), receive);
}

// The first ranks get one row more where they do not divide.
Status RunReducescatter(const Run& run, size_t index, const Submission& call) {
  const size_t row = RowElements(call.in);
  const auto rows = static_cast<size_t>(call.in.shape.front());
  std::vector<size_t> counts;
  for (size_t member = 0; member < run.size(); ++member) {
    counts.push_back((rows / run.size() + (member < rows % run.size() ? 1 : 0)) * row);
  }
  const size_t own_rows = rows / run.size() + (run.self() < rows % run.size() ? 1 : 0);
  const ResultMemory result(
      call, static_cast<int64_t>(own_rows), counts[run.self()] * ElementSize(call.in.dtype));
  *run.own_error = result.error();
  return run.backend.ReduceScatter(run.Context(index),
                                   call.in.data,
                                   result.data(),
                                   counts,
                                   ReductionOf(run.job.items[index].call->signature(), run.size()));
}

Status RunBroadcast(const Run& run, size_t index, const Submission& call) {
  const std::vector<int>& ranks = run.job.group->ranks;
  const auto root = std::find(ranks.begin(), ranks.end(), call.root);
  MUSTER_CHECK(root != ranks.end(), "the coordinator refuses other roots");
  return run.backend.Broadcast(run.Context(index),
                               call.in.data,
                               CountOf(call.in.shape, call.in.dtype) * ElementSize(call.in.dtype),
                               static_cast<int>(root - ranks.begin()));
}

Status RunOne(const Run& run, size_t index) {
  const std::shared_ptr<Call>& call = run.job.items[index].call;
  MUSTER_CHECK(call, "only an allreduce is done with zeros");
  const Submission& submission = call->submission();
  switch (submission.kind) {
    case OpKind::kAllgather:
      return RunAllgather(run, index, submission);
    case OpKind::kAlltoall:
      return RunAlltoall(run, index, submission);
    case OpKind::kReducescatter:
      return RunReducescatter(run, index, submission);
    case OpKind::kBroadcast:
      return RunBroadcast(run, index, submission);
    default:
      break;
  }
  MUSTER_CHECK(false, "an operation that moves data");
  return {};
}

bool IsAllreduce(const JobItem& item) {
  return !item.call || item.call->submission().kind == OpKind::kAllreduce;
}

JobOutcome RunItems(Backend& backend, const Job& job, std::chrono::milliseconds timeout) {
  JobOutcome outcome;
  outcome.own_errors.resize(job.items.size());
  const JobItem& first = job.items.front();
  if (IsAllreduce(first)) {
    const Run run{backend, job, timeout, &outcome.own_errors.front()};
    const bool is_adasum = first.call && first.call->submission().op == Op::kAdasum;
    outcome.status = is_adasum ? RunAdasum(run, first.call->submission()) : RunAllreduce(run);
    return outcome;
  }
  for (size_t i = 0; i < job.items.size() && outcome.status.ok(); ++i) {
    outcome.status = RunOne({backend, job, timeout, &outcome.own_errors[i]}, i);
  }
  return outcome;
}

}  // namespace

JobOutcome RunJob(Backend& backend, const Job& job, std::chrono::milliseconds timeout) {
  try {
    return RunItems(backend, job, timeout);
  } catch (const std::exception& error) {  // bad_alloc, length_error: no memory for a result.
    JobOutcome outcome;
    outcome.status = Status::Failed(std::string("no memory is left for a result: ") + error.what());
    outcome.own_errors.resize(job.items.size());
    return outcome;
  }
}

}  // namespace muster::worker
