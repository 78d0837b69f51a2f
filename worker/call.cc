#include "worker/call.h"

#include "worker/core/dtype.h"

namespace muster::worker {
namespace {

constexpr size_t kDimensionsMax = 64;

std::string FindTensorObjection(const Tensor& tensor, const char* what) {
  if (tensor.shape.size() > kDimensionsMax) {
    return std::string(what) + " has more than 64 dimensions";
  }
  const auto count = ElementCount(tensor.shape, tensor.dtype);
  if (!count) {
    return std::string(what) + " has the impossible shape " + ToString(tensor.shape);
  }
  if (*count > 0 && tensor.data == nullptr) {
    return std::string(what) + " has no data";
  }
  return "";
}

}  // namespace

bool CallBook::Add(Generation generation, const std::string& name) {
  const MutexLock lock(mutex_);
  return names_.size() < kInFlightMax && names_.emplace(generation.value, name).second;
}

void CallBook::Remove(Generation generation, const std::string& name) {
  const MutexLock lock(mutex_);
  names_.erase({generation.value, name});
}

Call::Call(Submission submission,
           Generation generation,
           bool reusable,
           std::shared_ptr<Operation> operation,
           CallBook& book)
    : submission_(std::move(submission)),
      generation_(generation),
      reusable_(reusable),
      operation_(std::move(operation)),
      book_(book) {}

FullRequest Call::Request() const {
  FullRequest request;
  request.name = submission_.name;
  request.reusable = reusable_;
  request.vote = submission_.vote;
  request.objection = FindObjection(submission_);
  Signature& signature = request.signature;
  signature.kind = submission_.kind;
  signature.set = submission_.set.id;
  if (submission_.kind == OpKind::kBarrier || submission_.kind == OpKind::kAgreement) {
    return request;
  }
  signature.dtype = submission_.in.dtype;
  signature.device_kind = submission_.in.device.kind;
  if (submission_.in.shape.size() <= kDimensionsMax) {
    signature.shape = submission_.in.shape;
  }
  if (submission_.kind == OpKind::kAllreduce) {
    signature.op = submission_.op;
    signature.prescale = submission_.prescale;
    signature.postscale = submission_.postscale;
  }
  if (submission_.kind == OpKind::kBroadcast) {
    signature.root = submission_.root;
  }
  return request;
}

// The name is free before the waiter wakes, who may use it again at once.
bool Call::Complete(std::exception_ptr error, bool agreed) {
  book_.Remove(generation_, submission_.name);
  return operation_->Complete(std::move(error), agreed);
}

std::string FindObjection(const Submission& submission) {
  if (submission.kind == OpKind::kBarrier || submission.kind == OpKind::kAgreement) {
    return "";
  }
  std::string objection = FindTensorObjection(submission.in, "the tensor");
  if (!objection.empty()) {
    return objection;
  }
  if (submission.kind == OpKind::kAllgather && !submission.allocate) {
    return "there is no function that gives memory for the result";
  }
  if (submission.kind != OpKind::kAllreduce) {
    return "";
  }
  if (submission.in.dtype != submission.out.dtype || submission.in.shape != submission.out.shape) {
    return std::string("the input is ") + Name(submission.in.dtype) + " " +
           ToString(submission.in.shape) + ", the output " + Name(submission.out.dtype) + " " +
           ToString(submission.out.shape);
  }
  return FindTensorObjection(submission.out, "the output");
}

}  // namespace muster::worker
