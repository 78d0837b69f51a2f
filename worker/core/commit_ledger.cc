#include "worker/core/commit_ledger.h"

#include <algorithm>

#include "common/check.h"

namespace muster::worker {

CommitId CommitLedger::Next(Generation generation, uint64_t passed) const {
  // 0 is left to the commit that a first sync takes before any agreement.
  const uint64_t posted = generation == generation_ ? posted_ : 0;
  return {generation.value, posted + passed + 1};
}

void CommitLedger::Posted(Generation generation) {
  MUSTER_CHECK(generation >= generation_, "an agreement was posted in an older generation");
  if (generation != generation_) {
    generation_ = generation;
    posted_ = 0;
  }
  ++posted_;
}

void CommitLedger::Hold(CommitId commit) {
  MUSTER_CHECK(!held_ || *held_ <= commit, "a worker would hold an older commit than before");
  held_ = commit;
}

SyncSource ChooseSource(const std::vector<std::optional<CommitId>>& held, Generation generation) {
  MUSTER_CHECK(!held.empty(), "a world has at least one member");
  // An empty optional is less than every commit, and max_element gives the first of equals.
  const auto newest = std::max_element(held.begin(), held.end());
  if (!newest->has_value()) {
    return {.rank = 0, .commit = {generation.value, 0}, .fresh = true};
  }
  const auto holders = std::count(held.begin(), held.end(), *newest);
  return {.rank = static_cast<int>(newest - held.begin()),
          .commit = **newest,
          .unanimous = static_cast<size_t>(holders) == held.size()};
}

}  // namespace muster::worker
