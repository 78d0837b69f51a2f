#pragma once

// What travels on a control link, between a rank and the coordinator of its generation, and its
// encoding: little-endian, lengths before contents (docs/engine.md). Decoding trusts nothing: bad
// bytes give kInvalid. No sockets here.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "common/status.h"
#include "worker/core/log_types.h"
#include "worker/core/process_sets.h"

namespace muster::worker {

// ---- rank -> coordinator

/// Who this rank is, where it listens for the data links of the others, and what it knows of the
/// job's process sets. First on the link.
struct Announce {
  std::vector<std::string> addresses;
  uint64_t incarnation = 0;
  uint32_t host = 0;         // Index of the host.
  bool has_segment = false;  // It has the memory that the workers of its host share.
  std::vector<SetRecord> sets;
  int32_t next_set_id = 1;
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

/// What was announced, by rank, and what follows from it. All lists have one item for each rank.
struct AddressTable {
  std::vector<std::vector<std::string>> addresses;
  std::vector<uint64_t> incarnations;
  std::vector<uint32_t> hosts;
  BackendKind backend = BackendKind::kGloo;
  std::vector<SetRecord> sets;
  int32_t next_set_id = 1;
};
/// The next entries of the log.
struct Entries {
  std::vector<LogEntry> entries;
};

// ---- both

/// Look into your ring: there is something in the memory that we share.
struct Poke {};

using ControlMessage = std::variant<Announce, Requests, Bye, AddressTable, Entries, Poke>;

std::string Encode(const ControlMessage& message);
Result<ControlMessage> Decode(std::string_view bytes);

/// Requests, or Entries, in as few messages of at most `bytes_max` as keep their order. One that is
/// too large for that is alone in its message, which then is larger: the caller sends it another
/// way. An entry is never split, because an Execute is one operation on every rank.
std::vector<std::string> EncodeRequests(std::span<const Request> requests, size_t bytes_max);
std::vector<std::string> EncodeEntries(std::span<const LogEntry> entries, size_t bytes_max);

/// Bytes of a message that holds nothing else.
size_t EncodedSize(const Request& request);
size_t EncodedSize(const LogEntry& entry);

}  // namespace muster::worker
