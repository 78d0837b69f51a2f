#pragma once

// Lists of hosts as text: what a discovery script prints, what -H takes, what stands in a hostfile.
// Pure functions over bytes that came from outside: anything may be in them, so every error is one
// short printable line that names the entry and where it stands. Thread-safe: no state.
//
// An entry is `host`, `host:slots`, `[v6]` or `[v6]:slots`. A host's name is what was written,
// without brackets and count. Blanks around, blank lines, CRLF and `#` comments do not matter. A
// host that is listed more than once keeps its larger count, whatever the order, with one warning.

#include <optional>
#include <string>
#include <string_view>

#include "common/status.h"
#include "discovery/host_source.h"

namespace muster::discovery {

inline constexpr size_t kHostListBytesMax = 1 << 20;  // All of a script's output, or a hostfile.
inline constexpr size_t kHostLineBytesMax = 512;
inline constexpr uint32_t kSlotsMax = 65535;

/// --slots-per-host: what an entry without a count gets. Absent: such an entry is an error.
using DefaultSlots = std::optional<uint32_t>;

/// One entry per line. Errors: kInvalid, "line 3: 'h:x': ...". Empty text is an empty list.
Result<HostList> ParseHostLines(std::string_view text, DefaultSlots default_slots);

/// Entries separated by commas, as -H takes them. An empty entry, or none at all, is an error.
Result<HostList> ParseHostArgument(std::string_view text, DefaultSlots default_slots);

/// Like lines, and `host slots=N` too. Errors start with "PATH:LINE: ".
Result<HostList> ParseHostfile(std::string_view text,
                               const std::string& path,
                               DefaultSlots default_slots);

/// True for what the parsers here take for a host's name: a name, or a literal without brackets.
bool IsHost(std::string_view name);

/// One entry without a count or with one; for checks of the command line.
Result<ListedHost> ParseHost(std::string_view entry, DefaultSlots default_slots);

/// The text with everything but printable ASCII as \xNN, cut after about `length_max` characters
/// with "..." put behind.
std::string Printable(std::string_view text, size_t length_max);

}  // namespace muster::discovery
