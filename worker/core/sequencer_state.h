#pragma once

// What the sequencer keeps of each operation and each group. Private to the sequencer's sources.
//
// Pure. Threads: one at a time.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/core/sequencer.h"

namespace muster::worker {

/// Where members of a group wait for the others. Groups are told apart by set and name; the next
/// one of that name may begin once a rank has submitted all of its members of this one.
struct Sequencer::Group {
  const Key* name = nullptr;
  // By member of the set, for the instance that it submits or has submitted last.
  std::vector<uint32_t> sizes;          // 0: nothing yet.
  std::vector<uint32_t> counts;         // Members submitted.
  uint32_t common_size = 0;             // The last one that a rank named.
  bool uneven = false;                  // Some members are beyond the size that a rank names.
  std::map<uint32_t, Operation*> held;  // Complete, by index.
  uint32_t held_size = 0;               // The group's size, as they have it.
  std::string wrong;                    // Why no member is done; empty: nothing yet.
  uint32_t pending = 0;                 // Operations that have entered, and wait.
  uint32_t known = 0;                   // Operations whose last calls are members.
  bool warned = false;
};

/// Of one name in one set; pending, or known by an id, or both.
struct Sequencer::Operation {
  /// How a member has submitted it.
  enum Presence : uint8_t { kAbsent, kById, kInFull };

  /// Ranks that made exactly the same call in full.
  struct Variant {
    Signature signature;
    std::vector<uint32_t> ranks;
  };
  /// What only calls in full bring.
  struct Spelled {
    std::vector<Variant> variants;
    std::vector<std::vector<int64_t>> dims;  // By member: its first dimension, or its splits.
    std::map<std::string, std::vector<uint32_t>> objections;  // And whose they are.
    bool reusable = false;
    bool vote = false;
  };
  /// The last call that was complete and in order.
  struct Call {
    Signature signature;
    std::vector<int64_t> dims;  // As in Item.
    FusionClass fusion_class;
    size_t bytes = 0;        // Of one rank, for the fusion's sake.
    size_t small_bytes = 0;  // What a request may bring; 0: nothing.
    Group* group = nullptr;
  };

  const Key* name = nullptr;
  const ProcessSets::Set* set = nullptr;
  uint32_t id = 0;
  bool respell = false;      // Some members have forgotten the id.
  std::optional<Call> call;  // Present if there is an id.

  // While it is pending.
  static constexpr size_t kIdle = SIZE_MAX;
  size_t place = kIdle;  // In Sequencer::pending_.
  uint32_t count = 0;    // Members that have submitted.
  std::vector<uint8_t> presence;
  std::unique_ptr<Spelled> spelled;
  std::vector<std::string> smalls;  // By member.
  uint32_t small_count = 0;
  std::vector<Group*> groups;  // Those that its calls name: one, if they agree.
  uint32_t group_index = 0;    // In the first of them.
  bool held = false;           // Complete, and waiting for its group.
  bool warned = false;
  Instant since;  // The first request of those who wait.

  size_t size() const { return presence.size(); }
};

}  // namespace muster::worker
