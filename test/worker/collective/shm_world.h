#pragma once

// The workers of one host as threads over one segment, and what a reduction of theirs has to give.

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "common/random.h"
#include "kernels/reduce.h"
#include "test/worker/shm/shm_fixture.h"
#include "worker/collective/reduction_plan.h"
#include "worker/collective/shm_backend.h"
#include "worker/shm/bell.h"

namespace muster::worker {

using Bytes = std::vector<char>;

inline std::chrono::steady_clock::time_point In(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}
constexpr std::chrono::seconds kLong{90};
constexpr std::chrono::milliseconds kBrief{60};

/// Their ranks in the world are not their places on the host, and not dense.
inline std::vector<int> WorldRanks(int members) {
  std::vector<int> ranks;
  for (int i = 0; i < members; ++i) {
    ranks.push_back(5 + 2 * i);
  }
  return ranks;
}

/// The group of these members, as `self` of them (a member too) sees it.
inline Group GroupOf(const std::vector<int>& members, int self) {
  Group group;
  for (const int member : members) {
    if (member == self) {
      group.self = group.size();
    }
    group.ranks.push_back(5 + 2 * member);
  }
  return group;
}

class ShmWorld {
 public:
  explicit ShmWorld(int members) : segment_(MakeSegment(members)) {
    all_.resize(static_cast<size_t>(members));
    std::iota(all_.begin(), all_.end(), 0);
    for (const int member : all_) {
      backends_.push_back(MakeShmBackend(segment_, WorldRanks(members), member));
    }
  }

  int size() const { return static_cast<int>(all_.size()); }
  const std::vector<int>& all() const { return all_; }
  BellWord& bell(int member) { return segment_->bell(member); }
  Backend& backend(int member) { return *backends_[static_cast<size_t>(member)]; }

  /// Runs `body` once for each member, at the same time; the outcomes by member.
  std::vector<Status> Run(const std::function<Status(int member, Backend& backend)>& body) {
    return OnRanks<Status>(size(), [&](int member) {
      Bell bell(segment_->bell(member));
      bell.Enter();
      Status status = body(member, backend(member));
      bell.Leave();
      return status;
    });
  }

  /// The same for an operation of all members. Empty if it went well everywhere.
  std::string RunAll(const std::function<Status(const OpContext&, Backend&)>& operation) {
    const uint64_t number = number_++;
    std::string errors;
    for (const Status& status : Run([&](int member, Backend&backend) {
           const Group group = GroupOf(all_, member);
           return operation({group, number, In(kLong)}, backend);
         })) {
      errors += status.ok() ? "" : status.message() + "; ";
    }
    return errors;
  }

 private:
  const std::shared_ptr<Segment> segment_;
  std::vector<int> all_;
  std::vector<std::unique_ptr<Backend>> backends_;
  uint64_t number_ = 0;
};

/// Passes up to some milliseconds, without giving the core away.
inline void Linger(Random& random, uint64_t loops_max) {
  const uint64_t loops = random.Below(loops_max);
  for (volatile uint64_t i = 0; i < loops;) {
    i = i + 1;
  }
}

inline Bytes RandomBytes(Random& random, size_t size) {
  Bytes bytes(size);
  size_t at = 0;
  for (; at + 8 <= size; at += 8) {
    const uint64_t word = random.Next();
    std::memcpy(bytes.data() + at, &word, 8);
  }
  for (; at < size; ++at) {
    bytes[at] = static_cast<char>(random.Next());
  }
  return bytes;
}

/// In one go, over the members' whole buffers in the order of the group. An empty one is zeros.
inline Bytes Reduced(const Reduction& what, const std::vector<Bytes>& inputs, size_t count) {
  std::vector<const void*> pointers;
  for (const Bytes& input : inputs) {
    pointers.push_back(input.empty() ? nullptr : input.data());
  }
  const kernels::ReducePlan plan = PlanOf(what);
  Bytes result(count * kernels::SizeOf(plan.type));
  kernels::ReduceMany(plan, pointers.data(), pointers.size(), result.data(), count);
  return result;
}

}  // namespace muster::worker
