#include "test/sim/job/fiber.h"

#include <cxxabi.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "common/check.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

namespace muster::sim {
namespace {

constexpr size_t kStackBytes = 256 << 10;

// Fibers come and go by the thousand.
std::vector<std::unique_ptr<std::byte[]>>& FreeStacks() {
  static std::vector<std::unique_ptr<std::byte[]>> stacks;
  return stacks;
}

// What the C++ runtime keeps per thread of the exceptions that are being handled (Itanium ABI,
// __cxa_eh_globals).
struct ExceptionGlobals {
  void* caught;
  unsigned uncaught;
};

ExceptionGlobals& CurrentExceptions() {
  return *reinterpret_cast<ExceptionGlobals*>(abi::__cxa_get_globals());
}

}  // namespace

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)) {
  if (FreeStacks().empty()) {
    // Not make_unique, which would clear it.
    stack_.reset(new std::byte[kStackBytes]);
  } else {
    stack_ = std::move(FreeStacks().back());
    FreeStacks().pop_back();
  }
  ::getcontext(&own_);
  own_.uc_stack.ss_sp = stack_.get();
  own_.uc_stack.ss_size = kStackBytes;
  own_.uc_link = nullptr;
  const auto self = reinterpret_cast<uintptr_t>(this);
  ::makecontext(&own_,
                reinterpret_cast<void (*)()>(&Fiber::Enter),
                2,
                static_cast<unsigned>(self >> 32),
                static_cast<unsigned>(self));
}

Fiber::~Fiber() {
  MUSTER_CHECK(!started_ || done_, "a fiber is destroyed half way");
  FreeStacks().push_back(std::move(stack_));
}

void Fiber::Enter(unsigned high, unsigned low) {
  auto* self = reinterpret_cast<Fiber*>(static_cast<uintptr_t>(high) << 32 | low);
#if defined(__SANITIZE_ADDRESS__)
  ::__sanitizer_finish_switch_fiber(nullptr, &self->resumer_stack_, &self->resumer_stack_bytes_);
#endif
  self->body_();
  self->body_ = nullptr;
  self->done_ = true;
  self->Switch(self->own_, self->resumer_, false, true);
}

void Fiber::Resume() {
  MUSTER_CHECK(!done_, "a fiber is resumed that has ended");
  started_ = true;
  Switch(resumer_, own_, true, false);
}

void Fiber::Yield() {
  Switch(own_, resumer_, false, false);
}

// Each side has its own stack of exceptions that it is handling.
void Fiber::Switch(ucontext_t& from,
                   const ucontext_t& to,
                   [[maybe_unused]] bool into_fiber,
                   [[maybe_unused]] bool last) {
  ExceptionGlobals& exceptions = CurrentExceptions();
  std::swap(exceptions.caught, caught_);
  std::swap(exceptions.uncaught, uncaught_);
#if defined(__SANITIZE_ADDRESS__)
  void* fake_stack = nullptr;
  ::__sanitizer_start_switch_fiber(last ? nullptr : &fake_stack,
                                   into_fiber ? stack_.get() : resumer_stack_,
                                   into_fiber ? kStackBytes : resumer_stack_bytes_);
#endif
  ::swapcontext(&from, &to);
#if defined(__SANITIZE_ADDRESS__)
  ::__sanitizer_finish_switch_fiber(fake_stack,
                                    into_fiber ? nullptr : &resumer_stack_,
                                    into_fiber ? nullptr : &resumer_stack_bytes_);
#endif
}

}  // namespace muster::sim
