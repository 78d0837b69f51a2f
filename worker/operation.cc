#include "worker/operation.h"

#include <utility>

#include "common/check.h"

namespace muster {

bool Operation::Complete(std::exception_ptr error, int64_t value) {
  const MutexLock lock(mutex_);
  MUSTER_CHECK(parts_ > 0, "an operation completes once");
  if (error && !error_) {
    error_ = std::move(error);
  }
  value_ = value;
  if (--parts_ > 0) {
    return false;
  }
  complete_.store(true, std::memory_order_release);
  completed_.NotifyAll();
  return !callbacks_.empty();
}

void Operation::RunCallbacks() {
  std::vector<Callback> callbacks;
  std::exception_ptr error;
  {
    const MutexLock lock(mutex_);
    callbacks.swap(callbacks_);
    error = error_;
  }
  for (const Callback& callback : callbacks) {
    callback(error);
  }
}

// No deadline of its own: the engine completes every operation, at the latest when its generation
// is revoked, and ends the process if it cannot.
void Operation::Wait() {
  if (!complete() && helper_ != nullptr) {
    helper_->HelpComplete(*this, generation_);
  }
  const MutexLock lock(mutex_);
  while (!complete()) {
    completed_.Wait(mutex_);
  }
  if (error_) {
    std::rethrow_exception(error_);
  }
}

int64_t Operation::WaitForValue() {
  Wait();
  const MutexLock lock(mutex_);
  return value_;
}

void Operation::Then(Callback callback) {
  std::exception_ptr error;
  {
    const MutexLock lock(mutex_);
    if (!complete()) {
      callbacks_.push_back(std::move(callback));
      return;
    }
    error = error_;
  }
  callback(error);
}

Operation& OperationAccess::Of(const Handle& handle) {
  if (!handle.operation_) {
    throw Error("this handle belongs to no operation");
  }
  return *handle.operation_;
}

Handle::Handle(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}

bool Handle::poll() const {
  return OperationAccess::Of(*this).complete();
}

void Handle::wait() {
  OperationAccess::Of(*this).Wait();
}

void Handle::then(std::function<void(std::exception_ptr)> callback) {
  OperationAccess::Of(*this).Then(std::move(callback));
}

}  // namespace muster
