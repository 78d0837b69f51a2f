#pragma once

// Network: which machines reach each other now, and the connections over it. What is under way on
// a connection waits while the way is cut, as TCP has it, and goes on when it is healed.

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "test/sim/job/universe.h"

namespace muster::sim {

/// The driver's machine; local hosts lie on it too.
inline const std::string kDriverMachine = "10.0.0.1";

class Network {
 public:
  explicit Network(Universe& universe) : universe_(universe) {}

  /// Machines by address. A machine always reaches itself.
  bool Reaches(const std::string& from, const std::string& to) const;
  bool Connected(const std::string& a, const std::string& b) const {
    return Reaches(a, b) && Reaches(b, a);
  }
  /// Nothing gets from `from` to `to` any more.
  void Cut(const std::string& from, const std::string& to);
  void Heal(const std::string& from, const std::string& to);
  void HealAll();
  bool whole() const { return cuts_.empty(); }
  /// Called once, when something has been healed.
  void OnHeal(Action action) { waiting_.push_back(std::move(action)); }
  /// Of one message.
  Duration Latency(const std::string& from, const std::string& to);

 private:
  void Healed();

  Universe& universe_;
  std::set<std::pair<std::string, std::string>> cuts_;
  std::vector<Action> waiting_;
};

/// One direction of a connection: everything arrives in order, or, once it is reset, nothing.
class Flow : public std::enable_shared_from_this<Flow> {
 public:
  Flow(Universe& universe, Network& network, std::string from, std::string to)
      : universe_(universe), network_(network), from_(std::move(from)), to_(std::move(to)) {}

  void Push(Action deliver);
  /// What has not arrived by now never does.
  void Reset();

 private:
  void Schedule();
  void Deliver();

  Universe& universe_;
  Network& network_;
  const std::string from_;
  const std::string to_;
  std::deque<Action> queue_;
  bool scheduled_ = false;
  uint64_t life_ = 0;
};

}  // namespace muster::sim
