#pragma once

// WorldView: who is in the job, from the events of its trace. A worker belongs to the newest world
// that any worker has entered.
//
// Pure: no clock and no file. One thread.

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "bench/trace_event.h"

namespace muster::bench {

class WorldView {
 public:
  struct Member {
    uint64_t incarnation = 0;
    pid_t pid = -1;
    int rank = 0;
    int64_t first_step_ns = 0;  // In this world; 0: none yet.
  };

  void Add(const TraceEvent& event);

  /// Of the newest world; 0: none yet.
  uint64_t generation() const { return generation_; }
  /// True once every member of a world of this size has finished a step in it.
  bool Trains(int size) const;
  /// By rank; so far as they have entered it.
  std::vector<Member> members() const;
  /// When the last of the members finished its first step.
  int64_t trains_since_ns() const;
  /// Workers that have called init() and are in no world.
  size_t waiting() const { return waiting_.size(); }

 private:
  uint64_t generation_ = 0;
  int size_ = 0;
  std::map<int, Member> members_;  // By rank.
  std::set<uint64_t> waiting_;     // Incarnations.
};

}  // namespace muster::bench
