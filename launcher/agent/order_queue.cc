#include "launcher/agent/order_queue.h"

#include <utility>

namespace muster::launcher {
namespace {

bool AboutGeneration(const v1::WorkerOrder& order) {
  return order.has_world() || order.has_revoked();
}

// What a newer order makes needless. A pending change of an older world is moot in the next one.
bool Replaces(const v1::WorkerOrder& newer, const v1::WorkerOrder& older) {
  if (newer.has_refused()) {
    return true;
  }
  if (AboutGeneration(newer)) {
    return AboutGeneration(older) || older.has_pending();
  }
  return newer.order_case() == older.order_case();
}

}  // namespace

void OrderQueue::Push(v1::WorkerOrder order) {
  std::erase_if(orders_, [&](const v1::WorkerOrder& older) { return Replaces(order, older); });
  orders_.push_back(std::move(order));
}

std::optional<v1::WorkerOrder> OrderQueue::Pop() {
  if (orders_.empty()) {
    return std::nullopt;
  }
  v1::WorkerOrder order = std::move(orders_.front());
  orders_.pop_front();
  return order;
}

}  // namespace muster::launcher
