#pragma once

// What travels on a control link, between a rank and the coordinator of its generation, and its
// encoding: little-endian, lengths before contents (docs/engine.md). Decoding trusts nothing: bad
// bytes give kInvalid. No sockets here.

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/status.h"
#include "worker/core/log_types.h"

namespace muster::worker {

// ---- rank -> coordinator

/// Where this rank listens for the data links of the others. First on the link.
struct Announce {
  std::vector<std::string> addresses;
};
/// In the order of submission.
struct Requests {
  std::vector<Request> requests;
};
/// The rank is in shutdown(). After Done the coordinator answers with MemberFinished in the log;
/// without it the rank leaves as if it had died, and the launcher decides what follows.
struct Bye {
  bool done = false;
};

// ---- coordinator -> rank

/// The announced addresses of all ranks.
struct AddressTable {
  std::vector<std::vector<std::string>> addresses;
};
/// The next entries of the log.
struct Entries {
  std::vector<LogEntry> entries;
};

using ControlMessage = std::variant<Announce, Requests, Bye, AddressTable, Entries>;

std::string Encode(const ControlMessage& message);
Result<ControlMessage> Decode(std::string_view bytes);

}  // namespace muster::worker
