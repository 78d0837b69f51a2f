#pragma once

// Who takes part, what each of them can do, and the command that starts it. No state.

#include <string>
#include <vector>

#include "bench/order.h"
#include "bench/rank_group.h"

namespace muster::bench {

enum class Contestant : uint8_t { kMuster, kGloo, kMpi, kShm };
/// "muster", "gloo", "mpi", "shm", in the order of the enum.
const std::vector<std::string>& ContestantNames();
const std::string& Name(Contestant contestant);
Result<Contestant> ParseContestant(const std::string& text);

/// Of allreduces: its best for each size is what counts. Empty: the contestant has no such thing.
std::vector<std::string> Algorithms(Contestant contestant, Operation operation, Pace pace);

struct Launch {
  int ranks = 1;
  int hosts = 1;          // Of Muster: "hosts" of this machine, which talk over TCP.
  std::string directory;  // For sockets and logs; exists.
  /// Further arguments of `muster run`.
  std::vector<std::string> muster_arguments;
};
/// kUnavailable: the contestant does not take part; the message is the reason, for the user.
Result<GroupSpec> SpecOf(Contestant contestant, const Launch& launch);

}  // namespace muster::bench
