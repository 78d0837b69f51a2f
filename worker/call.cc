#include "worker/call.h"

#include "worker/core/call_check.h"
#include "worker/core/dtype.h"

namespace muster::worker {
namespace {

constexpr size_t kDimensionsMax = 64;

std::string KeyOf(Generation generation, const ProcessSet& set, const std::string& name) {
  std::string key;
  key.reserve(2 * sizeof(uint64_t) + name.size());
  key.append(reinterpret_cast<const char*>(&generation.value), sizeof generation.value);
  key.append(reinterpret_cast<const char*>(&set.id), sizeof set.id);
  key.append(name);
  return key;
}

bool HasAllocate(OpKind kind) {
  return kind == OpKind::kAllgather || kind == OpKind::kAlltoall || kind == OpKind::kReducescatter;
}

bool IsKnown(DType dtype) {
  return dtype <= DType::kBool;
}
bool IsKnown(Op op) {
  return op <= Op::kProduct;
}

std::string FindTensorObjection(const Tensor& tensor, const char* what) {
  if (!IsKnown(tensor.dtype)) {
    return std::string(what) + " has the type number " +
           std::to_string(static_cast<int>(tensor.dtype)) + ", which stands for none";
  }
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

// Splits that are absent have been settled before.
std::string FindSplitsObjection(const Submission& submission, size_t set_size) {
  if (submission.in.shape.empty()) {
    return "";  // The coordinator refuses it, with the same words for every rank.
  }
  const int64_t rows = submission.in.shape.front();
  if (submission.splits.empty()) {
    return std::to_string(rows) + " rows do not divide into " + std::to_string(set_size) +
           " equal parts, and no splits were given";
  }
  return FindSplitsFault(rows, submission.splits, set_size);
}

}  // namespace

bool CallBook::Add(Generation generation, const ProcessSet& set, const std::string& name) {
  std::string key = KeyOf(generation, set, name);
  const MutexLock lock(mutex_);
  return keys_.size() < kInFlightMax && keys_.insert(std::move(key)).second;
}

void CallBook::Remove(Generation generation, const ProcessSet& set, const std::string& name) {
  const std::string key = KeyOf(generation, set, name);
  const MutexLock lock(mutex_);
  keys_.erase(key);
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
      book_(book) {
  Signature& signature = signature_;
  signature.kind = submission_.kind;
  signature.set = submission_.set.id;
  signature.group = submission_.group;
  signature.ranks = submission_.ranks;
  const bool has_root =
      submission_.kind == OpKind::kBroadcast || submission_.kind == OpKind::kRemoveSet;
  signature.root = has_root ? submission_.root : 0;
  if (!HasTensor(submission_.kind)) {
    return;
  }
  // A number that is no type or reduction would look to the others as if this rank broke the rules
  // of the protocol; the objection will say what it is.
  signature.dtype = IsKnown(submission_.in.dtype) ? submission_.in.dtype : DType::kU8;
  signature.device_kind = submission_.in.device.kind;
  if (submission_.in.shape.size() <= kDimensionsMax) {
    signature.shape = submission_.in.shape;
  }
  if (submission_.kind == OpKind::kAllreduce || submission_.kind == OpKind::kReducescatter) {
    signature.op = IsKnown(submission_.op) ? submission_.op : Op::kSum;
    signature.prescale = submission_.prescale;
    signature.postscale = submission_.postscale;
  }
}

void Call::Settle(size_t set_size) {
  if (submission_.kind == OpKind::kAlltoall && submission_.splits.empty() &&
      !submission_.in.shape.empty()) {
    submission_.splits = EqualSplits(submission_.in.shape.front(), set_size).value_or(Shape());
  }
  objection_ = FindObjection(submission_, set_size);
  if (!objection_.empty()) {
    submission_.splits.assign(set_size, 0);  // Of the form that the coordinator expects.
  }
}

FullRequest Call::Request() const {
  FullRequest request;
  request.name = submission_.name;
  request.signature = signature_;
  if (submission_.kind == OpKind::kAlltoall) {
    request.splits = submission_.splits;
  }
  request.reusable = reusable_;
  request.vote = submission_.vote;
  request.objection = objection_;
  request.small = Small();
  return request;
}

std::string Call::Small() const {
  if (!submission_.blocking || submission_.kind != OpKind::kAllreduce ||
      submission_.op == Op::kAdasum || !submission_.group.name.empty() ||
      submission_.in.device.kind != 0 || !objection_.empty()) {
    return "";
  }
  const int64_t count = ElementCount(submission_.in.shape, submission_.in.dtype).value_or(0);
  const size_t bytes = static_cast<size_t>(count) * ElementSize(submission_.in.dtype);
  return bytes > kSmallBytesMax ? ""
                                : std::string(static_cast<const char*>(submission_.in.data), bytes);
}

// The name is free before the waiter wakes, who may use it again at once.
bool Call::Complete(std::exception_ptr error, int64_t value) {
  book_.Remove(generation_, submission_.set, submission_.name);
  return operation_->Complete(std::move(error), value);
}

std::string FindObjection(const Submission& submission, size_t set_size) {
  if (!HasTensor(submission.kind)) {
    return "";
  }
  if (!IsKnown(submission.op)) {
    return "there is no reduction with the number " +
           std::to_string(static_cast<int>(submission.op));
  }
  std::string objection = FindTensorObjection(submission.in, "the tensor");
  if (!objection.empty()) {
    return objection;
  }
  if (HasAllocate(submission.kind) && !submission.allocate) {
    return "there is no function that gives memory for the result";
  }
  if (submission.kind == OpKind::kAlltoall) {
    return FindSplitsObjection(submission, set_size);
  }
  if (submission.kind != OpKind::kAllreduce) {
    return "";
  }
  if (!IsKnown(submission.out.dtype)) {
    return FindTensorObjection(submission.out, "the output");
  }
  if (submission.in.dtype != submission.out.dtype || submission.in.shape != submission.out.shape) {
    return std::string("the input is ") + Name(submission.in.dtype) + " " +
           ToString(submission.in.shape) + ", the output " + Name(submission.out.dtype) + " " +
           ToString(submission.out.shape);
  }
  return FindTensorObjection(submission.out, "the output");
}

}  // namespace muster::worker
