#include "worker/core/process_sets.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "common/check.h"
#include "worker/core/call_check.h"

namespace muster::worker {
namespace {

std::string SetText(int32_t id) {
  return "process set " + std::to_string(id);
}

std::vector<uint32_t> Unsigned(const std::vector<int32_t>& ranks) {
  return {ranks.begin(), ranks.end()};
}

bool HasDuplicates(std::vector<uint64_t> values) {
  std::sort(values.begin(), values.end());
  return std::adjacent_find(values.begin(), values.end()) != values.end();
}

}  // namespace

int ProcessSets::Set::IndexOf(uint32_t rank) const {
  // Of all workers, and of the first few, the index is the rank.
  if (rank < ranks.size() && static_cast<uint32_t>(ranks[rank]) == rank) {
    return static_cast<int>(rank);
  }
  const auto it =
      std::lower_bound(ranks.begin(), ranks.end(), rank, [](int32_t member, uint32_t wanted) {
        return static_cast<uint32_t>(member) < wanted;
      });
  return it != ranks.end() && static_cast<uint32_t>(*it) == rank
             ? static_cast<int>(it - ranks.begin())
             : -1;
}

ProcessSets::ProcessSets(const std::vector<uint64_t>& incarnations) {
  MUSTER_CHECK(!incarnations.empty(), "a world has members");
  Set world;
  world.ranks.resize(incarnations.size());
  std::iota(world.ranks.begin(), world.ranks.end(), 0);
  world.incarnations = incarnations;
  sets_.emplace(0, std::move(world));
}

ProcessSets ProcessSets::OfSize(uint32_t world_size) {
  std::vector<uint64_t> incarnations(world_size);
  std::iota(incarnations.begin(), incarnations.end(), 1);
  return ProcessSets(incarnations);
}

Result<ProcessSets> ProcessSets::FromRecords(const std::vector<SetRecord>& records,
                                             int32_t next_id,
                                             const std::vector<uint64_t>& incarnations) {
  if (incarnations.empty() || HasDuplicates(incarnations)) {
    return Status::Invalid("a world of " + std::to_string(incarnations.size()) +
                           " workers, some of them twice, or of none");
  }
  ProcessSets sets(incarnations);
  std::map<uint64_t, int32_t> ranks;
  for (size_t rank = 0; rank < incarnations.size(); ++rank) {
    ranks.emplace(incarnations[rank], static_cast<int32_t>(rank));
  }
  int32_t last = 0;
  for (const SetRecord& record : records) {
    if (record.id <= last || record.incarnations.empty() || HasDuplicates(record.incarnations)) {
      return Status::Invalid(SetText(record.id) + " is out of order, empty or has a worker twice");
    }
    last = record.id;
    Set set{record.id, {}, {}};
    std::vector<std::pair<int32_t, uint64_t>> members;
    for (const uint64_t incarnation : record.incarnations) {
      const auto it = ranks.find(incarnation);
      if (it != ranks.end()) {
        members.emplace_back(it->second, incarnation);
      }
    }
    if (members.size() < record.incarnations.size()) {
      set.incarnations = record.incarnations;
    } else {
      std::sort(members.begin(), members.end());
      for (const auto& [rank, incarnation] : members) {
        set.ranks.push_back(rank);
        set.incarnations.push_back(incarnation);
      }
    }
    sets.sets_.emplace(record.id, std::move(set));
  }
  if (next_id <= last) {
    return Status::Invalid("the next process set would be " + std::to_string(next_id) + " after " +
                           std::to_string(last));
  }
  sets.next_id_ = next_id;
  return sets;
}

std::vector<SetRecord> ProcessSets::ToRecords() const {
  std::vector<SetRecord> records;
  for (auto it = std::next(sets_.begin()); it != sets_.end(); ++it) {
    records.push_back({it->first, it->second.incarnations});
  }
  return records;
}

const ProcessSets::Set* ProcessSets::Find(int32_t id) const {
  if (id == 0) {
    return &world();
  }
  const auto it = sets_.find(id);
  return it == sets_.end() ? nullptr : &it->second;
}

std::string ProcessSets::FindUseFault(int32_t id, uint32_t rank) const {
  const Set* set = Find(id);
  if (set == nullptr) {
    return SetText(id) + " does not exist";
  }
  if (set->broken()) {
    return SetText(id) + " has lost worker(s), and cannot be used any more";
  }
  if (set->IndexOf(rank) < 0) {
    return "rank " + std::to_string(rank) + " is not in " + SetText(id) + " of " +
           RankList(Unsigned(set->ranks));
  }
  return "";
}

std::string ProcessSets::FindAddFault(const std::vector<int32_t>& ranks) const {
  if (ranks.empty()) {
    return "a process set needs a rank";
  }
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0 || static_cast<uint32_t>(ranks[i]) >= world_size()) {
      return "rank " + std::to_string(ranks[i]) + " is not in a world of " +
             std::to_string(world_size());
    }
    if (i > 0 && ranks[i] == ranks[i - 1]) {
      return "rank " + std::to_string(ranks[i]) + " is in the process set twice";
    }
    if (i > 0 && ranks[i] < ranks[i - 1]) {
      return "the ranks of the process set do not grow";
    }
  }
  const auto same = std::find_if(
      sets_.begin(), sets_.end(), [&](const auto& entry) { return entry.second.ranks == ranks; });
  if (same != sets_.end()) {
    return SetText(same->first) + " has the same workers, " + RankList(Unsigned(ranks));
  }
  return next_id_ == INT32_MAX ? "there have been too many process sets" : "";
}

std::string ProcessSets::FindRemoveFault(int32_t id) const {
  if (id == 0) {
    return "process set 0, of all workers, cannot be removed";
  }
  return sets_.contains(id) ? "" : SetText(id) + " does not exist";
}

int32_t ProcessSets::Add(const std::vector<int32_t>& ranks) {
  MUSTER_CHECK(FindAddFault(ranks).empty(), FindAddFault(ranks));
  Set set{next_id_, ranks, {}};
  for (const int32_t rank : ranks) {
    set.incarnations.push_back(world().incarnations[static_cast<size_t>(rank)]);
  }
  sets_.emplace(next_id_, std::move(set));
  return next_id_++;
}

void ProcessSets::Remove(int32_t id) {
  MUSTER_CHECK(FindRemoveFault(id).empty(), FindRemoveFault(id));
  sets_.erase(id);
}

// Every rank has applied the log from its start to some place. Adding raises the next id; removals
// behind the last addition leave fewer sets.
bool IsNewer(const std::vector<SetRecord>& records,
             int32_t next_id,
             const std::vector<SetRecord>& than_records,
             int32_t than_next_id) {
  return next_id != than_next_id ? next_id > than_next_id : records.size() < than_records.size();
}

}  // namespace muster::worker
