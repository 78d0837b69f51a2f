#pragma once

// LogFollower: a rank's side of the log of one generation. It knows which of the rank's operations
// are pending, turns a call into the shortest request, and tells which operation an entry is about.
//
// Pure. Threads: one at a time.

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "common/status.h"
#include "worker/core/log_types.h"

namespace muster::worker {

/// The caller's number for an operation.
using Ticket = uint64_t;

class LogFollower {
 public:
  /// kInvalid: an operation of that name is pending.
  Result<Request> Submit(Ticket ticket, FullRequest request);

  /// The operation that the entry is about. Nothing: it is about none of this rank's (somebody
  /// finished, or it failed for others). kInvalid: no honest coordinator sends this.
  Result<std::optional<Ticket>> Apply(const LogEntry& entry);

  size_t pending_count() const { return pending_.size(); }

 private:
  struct Pending {
    Ticket ticket = 0;
    Signature signature;
  };
  struct Known {
    uint32_t id = 0;
    Signature signature;  // Of this rank's last completed call.
  };

  Result<std::optional<Ticket>> Complete(const OperationKey& key);
  Result<std::optional<Ticket>> Drop(const OperationKey& key);
  std::optional<std::string> NameOf(const OperationKey& key) const;

  std::map<std::string, Pending> pending_;
  std::map<std::string, Known> known_;
  std::map<uint32_t, std::string> names_;
};

}  // namespace muster::worker
