// The sequencer's groups: members wait for each other, and share their fate.

#include <algorithm>
#include <utility>

#include "worker/core/call_check.h"
#include "worker/core/sequencer.h"
#include "worker/core/sequencer_state.h"

namespace muster::worker {

Sequencer::Group& Sequencer::FindGroup(const ProcessSets::Set& set, std::string_view name) {
  auto it = groups_.find(KeyView(set.id, name));
  if (it == groups_.end()) {
    it = groups_.emplace(Key(set.id, name), std::make_unique<Group>()).first;
    Group& group = *it->second;
    group.name = &it->first;
    group.sizes.resize(set.size());
    group.counts.resize(set.size());
  }
  return *it->second;
}

void Sequencer::EnterGroup(Operation& operation, Group& group, const GroupKey& key, size_t index) {
  if (group.counts[index] == group.sizes[index]) {
    group.counts[index] = 0;  // Of the rank's last one.
  }
  const uint32_t size = std::max(key.size, 1U);  // A wrong call, too, is a member.
  group.sizes[index] = size;
  ++group.counts[index];
  group.uneven =
      group.uneven || key.index >= size || (group.common_size != 0 && group.common_size != size);
  group.common_size = size;
  if (std::find(operation.groups.begin(), operation.groups.end(), &group) ==
      operation.groups.end()) {
    if (operation.groups.empty()) {
      operation.group_index = key.index;
    }
    operation.groups.push_back(&group);
    ++group.pending;
  }
}

void Sequencer::DecideGroup(Operation& operation, std::string wrong) {
  const std::string& name = operation.name->second;
  if (wrong.empty()) {
    Group& group = *operation.groups.front();
    if (!group.wrong.empty()) {
      Reject(operation, Quoted(name) + " " + group.wrong);
      return;
    }
    wrong = Hold(operation, group);
    if (wrong.empty()) {
      if (group.held.size() == group.held_size) {
        AcceptGroup(group);
      }
      return;
    }
  }
  // The groups stay until the operation itself is released, for it has entered them.
  for (Group* group : operation.groups) {
    if (group->wrong.empty()) {
      group->wrong = "is in group " + Quoted(group->name->second) + " with " + Quoted(name) +
                     ", which is wrong: " + wrong;
    }
    for (const auto& [index, member] : std::exchange(group->held, {})) {
      Reject(*member, Quoted(member->name->second) + " " + group->wrong);
    }
  }
  Reject(operation, std::move(wrong));
}

/// Why the operation cannot wait among the complete members of the group; empty: it does.
std::string Sequencer::Hold(Operation& operation, Group& group) {
  const GroupKey& key = operation.call->signature.group;
  const std::string name = Quoted(group.name->second);
  if (!group.held.empty() && group.held_size != key.size) {
    return "group " + name + " has " + std::to_string(key.size) + " members here and " +
           std::to_string(group.held_size) + " elsewhere";
  }
  if (!group.held.emplace(key.index, &operation).second) {
    return "group " + name + " has two members with the number " + std::to_string(key.index);
  }
  group.held_size = key.size;
  operation.held = true;
  return "";
}

void Sequencer::AcceptGroup(Group& group) {
  const std::map<uint32_t, Operation*> members = std::exchange(group.held, {});
  std::vector<DataOperation> operations;
  operations.reserve(members.size());
  for (const auto& [index, member] : members) {
    operations.push_back(DataOf(*member));
  }
  tail_.AppendGroup(std::move(operations));
  for (const auto& [index, member] : members) {
    Release(*member);
  }
}

/// Between two groups of one name nothing stays; nor does the group, if no id leads to it.
void Sequencer::EraseIfUnused(Group& group) {
  if (group.pending != 0) {
    return;
  }
  if (!group.wrong.empty() && group.counts != group.sizes) {
    return;  // Some ranks have yet to submit members, which share the fate of the others.
  }
  if (group.known == 0) {
    groups_.erase(groups_.find(KeyView(*group.name)));
    return;
  }
  group.wrong.clear();
  group.warned = false;
  group.uneven = false;
  group.common_size = 0;
  std::fill(group.sizes.begin(), group.sizes.end(), 0);
  std::fill(group.counts.begin(), group.counts.end(), 0);
}

}  // namespace muster::worker
