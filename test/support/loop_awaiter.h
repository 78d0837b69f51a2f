#pragma once

// LoopAwaiter: runs a loop on the test's own thread until something has happened. Whatever changes
// the condition calls Changed; a test that hangs is ended instead.

#include <chrono>
#include <functional>

#include "common/loop.h"

namespace muster {

class LoopAwaiter {
 public:
  explicit LoopAwaiter(Loop& loop) : loop_(loop) {}

  void Changed() { loop_.Stop(); }

  /// False if the condition does not come true.
  bool Await(const std::function<bool()>& condition) {
    bool hangs = false;
    const Loop::TimerId bound = loop_.After(std::chrono::seconds(20), [&] {
      hangs = true;
      loop_.Stop();
    });
    while (!condition() && !hangs) {
      loop_.Run();
    }
    loop_.Cancel(bound);
    return condition();
  }

 private:
  Loop& loop_;
};

}  // namespace muster
