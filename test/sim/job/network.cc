#include "test/sim/job/network.h"

namespace muster::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

}  // namespace

bool Network::Reaches(const std::string& from, const std::string& to) const {
  return from == to || !cuts_.contains({from, to});
}

void Network::Cut(const std::string& from, const std::string& to) {
  if (from != to) {
    cuts_.insert({from, to});
  }
}

void Network::Heal(const std::string& from, const std::string& to) {
  if (cuts_.erase({from, to}) > 0) {
    Healed();
  }
}

void Network::HealAll() {
  cuts_.clear();
  Healed();
}

void Network::Healed() {
  for (Action& action : std::exchange(waiting_, {})) {
    // TCP tries again at its own times.
    universe_.At(universe_.Between(Duration::zero(), milliseconds(400)), std::move(action));
  }
}

Duration Network::Latency(const std::string& from, const std::string& to) {
  if (universe_.Chance(2)) {
    return universe_.Between(milliseconds(1), milliseconds(100));  // Lost once, or a busy machine.
  }
  return from == to ? universe_.Between(microseconds(20), microseconds(300))
                    : universe_.Between(microseconds(100), milliseconds(2));
}

void Flow::Push(Action deliver) {
  queue_.push_back(std::move(deliver));
  Schedule();
}

void Flow::Reset() {
  queue_.clear();
  ++life_;
  scheduled_ = false;
}

void Flow::Schedule() {
  if (scheduled_ || queue_.empty()) {
    return;
  }
  scheduled_ = true;
  universe_.At(network_.Latency(from_, to_), [self = shared_from_this(), life = life_] {
    if (self->life_ == life) {
      self->Deliver();
    }
  });
}

void Flow::Deliver() {
  scheduled_ = false;
  if (!network_.Reaches(from_, to_)) {
    scheduled_ = true;
    network_.OnHeal([self = shared_from_this(), life = life_] {
      if (self->life_ == life) {
        self->Deliver();
      }
    });
    return;
  }
  // All that was sent by now: a stream has no gaps between its messages.
  const uint64_t life = life_;
  for (const Action& deliver : std::exchange(queue_, {})) {
    deliver();
    if (life_ != life) {
      return;  // It was reset by what has arrived.
    }
  }
  Schedule();
}

}  // namespace muster::sim
