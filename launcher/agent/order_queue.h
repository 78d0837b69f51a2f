#pragma once

// OrderQueue: what an agent still has to tell one worker. A worker that does not listen (it is
// stopped, say) costs a bounded amount of memory: of World and Revoked only the newest is kept, of
// the other kinds the newest of each kind. Order is kept otherwise. Pure: no I/O, no thread.

#include <deque>
#include <optional>

#include "muster/v1/workers.pb.h"

namespace muster::launcher {

class OrderQueue {
 public:
  void Push(v1::WorkerOrder order);
  std::optional<v1::WorkerOrder> Pop();
  size_t size() const { return orders_.size(); }

 private:
  std::deque<v1::WorkerOrder> orders_;
};

}  // namespace muster::launcher
