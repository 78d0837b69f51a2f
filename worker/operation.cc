#include "worker/operation.h"

#include <utility>

#include "common/check.h"

namespace muster {

bool Operation::Complete(std::exception_ptr error, bool agreed) {
  const MutexLock lock(mutex_);
  MUSTER_CHECK(!complete_, "an operation completes once");
  complete_ = true;
  agreed_ = agreed;
  error_ = std::move(error);
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

bool Operation::complete() const {
  const MutexLock lock(mutex_);
  return complete_;
}

// No deadline of its own: the engine completes every operation, at the latest when its generation
// is revoked, and ends the process if it cannot.
void Operation::Wait() {
  const MutexLock lock(mutex_);
  while (!complete_) {
    completed_.Wait(mutex_);
  }
  if (error_) {
    std::rethrow_exception(error_);
  }
}

bool Operation::WaitForAgreement() {
  Wait();
  const MutexLock lock(mutex_);
  return agreed_;
}

void Operation::Then(Callback callback) {
  std::exception_ptr error;
  {
    const MutexLock lock(mutex_);
    if (!complete_) {
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
