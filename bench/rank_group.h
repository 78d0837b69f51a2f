#pragma once

// The processes of one contestant: started once, idle in a read while another contestant is
// measured, and ended, by process id, with their owner. A rank that dies, hangs or computes wrong
// is an error that names contestant, rank and order.
//
// Not in here: which command starts a contestant (contestants.h).
// One thread. SIGINT and SIGTERM are to be blocked in it: while a group waits, either is an error.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "bench/order.h"
#include "common/process.h"

namespace muster::bench {

struct GroupSpec {
  std::string name;  // For messages.
  int ranks = 1;
  std::string socket;  // The path at which the ranks report.
  std::string log;     // The file that gets their output.
  /// One launcher that starts all ranks, or one process per rank.
  std::vector<std::vector<std::string>> commands;
  /// A descriptor that the processes get under the same number; -1: none.
  UniqueFd inherited;
};

class RankGroup {
 public:
  static Result<std::unique_ptr<RankGroup>> Start(GroupSpec spec, std::chrono::seconds timeout);
  ~RankGroup();
  RankGroup(const RankGroup&) = delete;
  RankGroup& operator=(const RankGroup&) = delete;

  /// The reports of all ranks, by rank. After an error the group is of no more use.
  Result<std::vector<Report>> Execute(const Order& order, std::chrono::seconds timeout);

  const std::string& name() const { return spec_.name; }
  int size() const { return spec_.ranks; }
  /// By rank.
  std::vector<pid_t> pids() const;

 private:
  struct Rank {
    UniqueFd socket;
    UniqueFd pidfd;  // Of the rank itself, which a launcher may have started.
    pid_t pid = -1;
  };

  explicit RankGroup(GroupSpec spec);
  Status Spawn();
  Status Accept(Deadline deadline);
  Status Admit(UniqueFd socket);
  /// Waits until one of `sockets` can be read; gives its index. -1 sockets are left out.
  Result<size_t> WaitForOne(const std::vector<int>& sockets,
                            Deadline deadline,
                            const std::string& during);
  /// With the end of the ranks' output, which tells why.
  Status Failure(const std::string& what);
  void End();

  GroupSpec spec_;
  UniqueFd listener_;
  std::vector<SpawnedProcess> processes_;
  std::vector<Rank> ranks_;
  int rank_count_ = 0;  // Of those that have said hello.
  bool failed_ = false;
};

}  // namespace muster::bench
