#include "bench/world_view.h"

#include <algorithm>

namespace muster::bench {

void WorldView::Add(const TraceEvent& event) {
  if (event.kind == "init") {
    waiting_.insert(event.incarnation);
  } else if (event.kind == "reaped") {
    waiting_.erase(event.incarnation);
  } else if (event.kind == "world" && event.generation >= generation_) {
    if (event.generation > generation_) {
      generation_ = event.generation;
      size_ = event.size;
      members_.clear();
    }
    waiting_.erase(event.incarnation);
    members_[event.rank] = {.incarnation = event.incarnation, .pid = event.pid, .rank = event.rank};
  } else if (event.kind == "step" && event.generation == generation_) {
    const auto member = members_.find(event.rank);
    if (member != members_.end() && member->second.first_step_ns == 0) {
      member->second.first_step_ns = event.t_ns;
    }
  }
}

bool WorldView::Trains(int size) const {
  return size_ == size && members_.size() == static_cast<size_t>(size) &&
         std::all_of(members_.begin(), members_.end(), [](const auto& entry) {
           return entry.second.first_step_ns != 0;
         });
}

std::vector<WorldView::Member> WorldView::members() const {
  std::vector<Member> members;
  for (const auto& [rank, member] : members_) {
    members.push_back(member);
  }
  return members;
}

int64_t WorldView::trains_since_ns() const {
  int64_t last = 0;
  for (const auto& [rank, member] : members_) {
    last = std::max(last, member.first_step_ns);
  }
  return last;
}

}  // namespace muster::bench
