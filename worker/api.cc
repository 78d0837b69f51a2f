// The public functions of muster.h: they turn a call into a Submission and a place into a number.

#include <cstring>
#include <utility>

#include "muster/muster.h"
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

Options WithSuffix(Options options, const char* suffix) {
  if (!options.name.empty()) {
    options.name += suffix;
  }
  return options;
}

}  // namespace

void init() {
  worker::InitProcessRuntime();
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

Handle allreduce_async(Tensor in, Tensor out, Options options) {
  worker::Runtime& runtime = GetRuntime();
  worker::FaultPoint("allreduce", runtime.place().rank);
  Submission submission = Start(OpKind::kAllreduce, std::move(options));
  submission.in = std::move(in);
  submission.out = std::move(out);
  return runtime.Submit(std::move(submission));
}

Handle allgather_async(Tensor in, Allocate out, Options options) {
  Submission submission = Start(OpKind::kAllgather, std::move(options));
  submission.in = std::move(in);
  submission.allocate = std::move(out);
  return GetRuntime().Submit(std::move(submission));
}

Handle broadcast_async(Tensor inout, int root, Options options) {
  Submission submission = Start(OpKind::kBroadcast, std::move(options));
  submission.in = inout;
  submission.out = std::move(inout);
  submission.root = root;
  return GetRuntime().Submit(std::move(submission));
}

Handle barrier_async(Options options) {
  return GetRuntime().Submit(Start(OpKind::kBarrier, std::move(options)));
}

void allreduce(Tensor in, Tensor out, Options options) {
  allreduce_async(std::move(in), std::move(out), std::move(options)).wait();
}

void allgather(Tensor in, Allocate out, Options options) {
  allgather_async(std::move(in), std::move(out), std::move(options)).wait();
}

void broadcast(Tensor inout, int root, Options options) {
  broadcast_async(std::move(inout), root, std::move(options)).wait();
}

void barrier(Options options) {
  barrier_async(std::move(options)).wait();
}

std::string broadcast_object(std::string bytes, int root, Options options) {
  auto size = static_cast<int64_t>(bytes.size());
  broadcast({&size, DType::kI64, {1}}, root, WithSuffix(options, ".size"));
  bytes.resize(static_cast<size_t>(size));
  broadcast({bytes.data(), DType::kU8, {size}}, root, WithSuffix(options, ".bytes"));
  return bytes;
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
