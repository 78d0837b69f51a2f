#pragma once

// CutProxy: a TCP link that a test can break, or make swallow all bytes, between an agent and the
// driver's service. Threads: one of its own; methods from any.

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "common/loop.h"
#include "common/unique_fd.h"

namespace muster::test {

class CutProxy {
 public:
  /// `target` is a literal with port, listened at or not.
  explicit CutProxy(std::string target);
  ~CutProxy();

  const std::string& address() const { return address_; }
  int connections() const { return connections_; }

  /// Breaks all connections; new ones are taken.
  void Cut();
  /// From now on nothing passes, in either direction, on old and new connections alike.
  void Swallow(bool swallow);
  /// Nothing comes back from the target.
  void SwallowAnswers(bool swallow);

 private:
  struct Pair {
    UniqueFd near;
    UniqueFd far;
  };
  void SwallowNow();
  void OnListener();
  void Pump(int from);
  void Close(int fd);

  const std::string target_;
  std::string address_;
  UniqueFd listener_;
  Loop loop_;
  std::map<int, std::shared_ptr<Pair>> pairs_;  // By each of their descriptors.
  bool swallow_ = false;
  bool swallow_answers_ = false;
  std::atomic<int> connections_ = 0;
  std::jthread thread_;
};

}  // namespace muster::test
