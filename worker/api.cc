// The public functions of muster.h: they turn a call into a Submission and a place into a number.

#include <algorithm>
#include <utility>

#include "muster/muster.h"
#include "worker/core/dtype.h"
#include "worker/fault.h"
#include "worker/process_runtime.h"
#include "worker/runtime.h"
#include "worker/trace_fields.h"

namespace muster {
namespace {

using worker::GetRuntime;
using worker::OpKind;
using worker::Submission;

Submission Start(OpKind kind, Options options) {
  Submission submission;
  submission.kind = kind;
  submission.name = std::move(options.name);
  submission.op = options.op;
  submission.prescale = options.prescale;
  submission.postscale = options.postscale;
  submission.set = options.set;
  return submission;
}

void RequireSameLength(size_t in, size_t out, const char* what) {
  if (in != out) {
    throw InvalidCollective(std::string(what) + ": " + std::to_string(in) + " inputs and " +
                            std::to_string(out) + " outputs");
  }
}

Options WithSuffix(Options options, const char* suffix) {
  if (!options.name.empty()) {
    options.name += suffix;
  }
  return options;
}

}  // namespace

void init() {
  worker::InitProcessRuntime({});
}
void init(const std::vector<std::vector<int>>& process_sets) {
  worker::InitProcessRuntime(process_sets);
}
void shutdown() {
  worker::ShutdownProcessRuntime();
}
bool is_initialized() {
  return worker::ProcessRuntimeIsInitialized();
}

int rank() {
  return GetRuntime().place().rank;
}
int size() {
  return GetRuntime().place().size;
}
int local_rank() {
  return GetRuntime().place().local_rank;
}
int local_size() {
  return GetRuntime().place().local_size;
}
int cross_rank() {
  return GetRuntime().place().cross_rank;
}
int cross_size() {
  return GetRuntime().place().cross_size;
}
int slot() {
  return GetRuntime().place().slot;
}

// ---------------------------------------------------------------- submissions

namespace {

Submission Allreduce(Tensor in, Tensor out, Options options) {
  worker::FaultPoint("allreduce", GetRuntime().place().rank);
  Submission submission = Start(OpKind::kAllreduce, std::move(options));
  submission.in = std::move(in);
  submission.out = std::move(out);
  return submission;
}

Submission Gather(OpKind kind, Tensor in, Allocate out, Options options) {
  Submission submission = Start(kind, std::move(options));
  submission.in = std::move(in);
  submission.allocate = std::move(out);
  return submission;
}

Submission Broadcast(Tensor inout, int root, Options options) {
  Submission submission = Start(OpKind::kBroadcast, std::move(options));
  submission.in = inout;
  submission.out = std::move(inout);
  submission.root = root;
  return submission;
}

Submission Alltoall(Tensor in,
                    std::vector<int64_t> splits,
                    Allocate out,
                    std::vector<int64_t>* received_splits,
                    Options options) {
  Submission submission =
      Gather(OpKind::kAlltoall, std::move(in), std::move(out), std::move(options));
  submission.splits = std::move(splits);
  submission.received_splits = received_splits;
  return submission;
}

Handle SubmitGathers(OpKind kind,
                     std::vector<Tensor> in,
                     std::vector<Allocate> out,
                     const Options& options) {
  RequireSameLength(in.size(), out.size(), Name(kind));
  std::vector<Submission> members;
  for (size_t i = 0; i < in.size(); ++i) {
    members.push_back(Gather(kind, std::move(in[i]), std::move(out[i]), options));
  }
  return GetRuntime().SubmitGroup(std::move(members));
}

/// Submits what the caller waits for at once, and waits.
int64_t Do(Submission submission) {
  submission.blocking = true;
  worker::Runtime& runtime = GetRuntime();
  Handle handle = runtime.Submit(std::move(submission));
  return runtime.Value(handle);
}

}  // namespace

Handle allreduce_async(Tensor in, Tensor out, Options options) {
  return GetRuntime().Submit(Allreduce(std::move(in), std::move(out), std::move(options)));
}
void allreduce(Tensor in, Tensor out, Options options) {
  Do(Allreduce(std::move(in), std::move(out), std::move(options)));
}

Handle grouped_allreduce_async(std::vector<Tensor> in, std::vector<Tensor> out, Options options) {
  RequireSameLength(in.size(), out.size(), "allreduce");
  std::vector<Submission> members;
  for (size_t i = 0; i < in.size(); ++i) {
    members.push_back(Allreduce(std::move(in[i]), std::move(out[i]), options));
  }
  return GetRuntime().SubmitGroup(std::move(members));
}
void grouped_allreduce(std::vector<Tensor> in, std::vector<Tensor> out, Options options) {
  grouped_allreduce_async(std::move(in), std::move(out), std::move(options)).wait();
}

Handle allgather_async(Tensor in, Allocate out, Options options) {
  return GetRuntime().Submit(
      Gather(OpKind::kAllgather, std::move(in), std::move(out), std::move(options)));
}
void allgather(Tensor in, Allocate out, Options options) {
  Do(Gather(OpKind::kAllgather, std::move(in), std::move(out), std::move(options)));
}
Handle grouped_allgather_async(std::vector<Tensor> in, std::vector<Allocate> out, Options options) {
  return SubmitGathers(OpKind::kAllgather, std::move(in), std::move(out), options);
}
void grouped_allgather(std::vector<Tensor> in, std::vector<Allocate> out, Options options) {
  grouped_allgather_async(std::move(in), std::move(out), std::move(options)).wait();
}

Handle broadcast_async(Tensor inout, int root, Options options) {
  return GetRuntime().Submit(Broadcast(std::move(inout), root, std::move(options)));
}
void broadcast(Tensor inout, int root, Options options) {
  Do(Broadcast(std::move(inout), root, std::move(options)));
}

Handle alltoall_async(Tensor in,
                      std::vector<int64_t> splits,
                      Allocate out,
                      std::vector<int64_t>* received_splits,
                      Options options) {
  return GetRuntime().Submit(Alltoall(
      std::move(in), std::move(splits), std::move(out), received_splits, std::move(options)));
}
void alltoall(Tensor in,
              std::vector<int64_t> splits,
              Allocate out,
              std::vector<int64_t>* received_splits,
              Options options) {
  Do(Alltoall(
      std::move(in), std::move(splits), std::move(out), received_splits, std::move(options)));
}

Handle reducescatter_async(Tensor in, Allocate out, Options options) {
  return GetRuntime().Submit(
      Gather(OpKind::kReducescatter, std::move(in), std::move(out), std::move(options)));
}
void reducescatter(Tensor in, Allocate out, Options options) {
  Do(Gather(OpKind::kReducescatter, std::move(in), std::move(out), std::move(options)));
}
Handle grouped_reducescatter_async(std::vector<Tensor> in,
                                   std::vector<Allocate> out,
                                   Options options) {
  return SubmitGathers(OpKind::kReducescatter, std::move(in), std::move(out), options);
}
void grouped_reducescatter(std::vector<Tensor> in, std::vector<Allocate> out, Options options) {
  grouped_reducescatter_async(std::move(in), std::move(out), std::move(options)).wait();
}

Handle barrier_async(Options options) {
  return GetRuntime().Submit(Start(OpKind::kBarrier, std::move(options)));
}
void barrier(Options options) {
  Do(Start(OpKind::kBarrier, std::move(options)));
}

int join() {
  return static_cast<int>(Do(Start(OpKind::kJoin, {.name = "join.noname"})));
}

// ---------------------------------------------------------------- process sets

ProcessSet add_process_set(std::vector<int> ranks) {
  Submission submission = Start(OpKind::kAddSet, {});
  std::sort(ranks.begin(), ranks.end());
  submission.ranks.assign(ranks.begin(), ranks.end());
  return {static_cast<int32_t>(Do(std::move(submission)))};
}

void remove_process_set(ProcessSet set) {
  Submission submission = Start(OpKind::kRemoveSet, {});
  submission.root = set.id;
  Do(std::move(submission));
}

std::vector<int> process_set_ranks(ProcessSet set) {
  return GetRuntime().SetRanks(set);
}

std::vector<ProcessSet> process_sets() {
  return GetRuntime().Sets();
}

// ---------------------------------------------------------------- objects

std::string broadcast_object(std::string bytes, int root, Options options) {
  auto size = static_cast<int64_t>(bytes.size());
  broadcast({&size, DType::kI64, {1}}, root, WithSuffix(options, ".size"));
  bytes.resize(static_cast<size_t>(size));
  broadcast({bytes.data(), DType::kU8, {size}}, root, WithSuffix(options, ".bytes"));
  return bytes;
}

std::vector<std::string> allgather_object(std::string bytes, Options options) {
  auto size = static_cast<int64_t>(bytes.size());
  std::vector<int64_t> sizes;
  allgather(
      {&size, DType::kI64, {1}},
      [&sizes](const Shape& shape, DType, const Device&) {
        sizes.resize(static_cast<size_t>(shape.front()));
        return sizes.data();
      },
      WithSuffix(options, ".size"));
  std::string all;
  allgather(
      {bytes.data(), DType::kU8, {size}},
      [&all](const Shape& shape, DType, const Device&) {
        all.resize(static_cast<size_t>(shape.front()));
        return all.data();
      },
      WithSuffix(options, ".bytes"));
  std::vector<std::string> objects;
  size_t at = 0;
  for (const int64_t count : sizes) {
    objects.push_back(all.substr(at, static_cast<size_t>(count)));
    at += static_cast<size_t>(count);
  }
  return objects;
}

void trace_step(int64_t n) {
  worker::Runtime& runtime = GetRuntime();
  worker::FaultPoint("step", runtime.place().rank);
  if (!runtime.trace().enabled()) {
    return;
  }
  nlohmann::json fields = worker::TraceFields(runtime.place(), std::nullopt);
  fields["step"] = n;
  runtime.trace().Write("step", std::move(fields));
}

}  // namespace muster
