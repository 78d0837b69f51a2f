#pragma once

// Strong types for the words of docs/architecture.md. All are values, ordered, printable.

#include <compare>
#include <cstdint>
#include <ostream>
#include <string>

namespace muster {

/// A host's name exactly as discovery printed it. Short name and FQDN are two hosts.
struct HostId {
  std::string value;
  auto operator<=>(const HostId&) const = default;
};

/// Room for one worker on a host; devices belong to slots.
struct SlotId {
  HostId host;
  uint32_t index = 0;
  auto operator<=>(const SlotId&) const = default;
};

/// One worker process. Grows, never reused in a job; 0 is nobody.
struct Incarnation {
  uint64_t value = 0;
  auto operator<=>(const Incarnation&) const = default;
};

/// Number of the world; +1 at every change. Fences every message. 0 is "no world yet".
struct Generation {
  uint64_t value = 0;
  auto operator<=>(const Generation&) const = default;
};

/// Which snapshot of State: ordered by generation, then by sequence.
struct CommitId {
  uint64_t generation = 0;
  uint64_t sequence = 0;
  auto operator<=>(const CommitId&) const = default;
};

inline std::ostream& operator<<(std::ostream& out, const HostId& id) {
  return out << id.value;
}
inline std::ostream& operator<<(std::ostream& out, const SlotId& id) {
  return out << id.host << '/' << id.index;
}
inline std::ostream& operator<<(std::ostream& out, Incarnation id) {
  return out << '#' << id.value;
}
inline std::ostream& operator<<(std::ostream& out, Generation id) {
  return out << 'g' << id.value;
}
inline std::ostream& operator<<(std::ostream& out, CommitId id) {
  return out << '(' << id.generation << ',' << id.sequence << ')';
}

}  // namespace muster
