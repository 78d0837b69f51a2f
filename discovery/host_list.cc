#include "discovery/host_list.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <set>
#include <utility>

namespace muster::discovery {
namespace {

constexpr size_t kQuotedMax = 60;     // Characters of a bad entry that an error shows.
constexpr size_t kHostNameMax = 253;  // RFC 1035, without the final dot.
constexpr std::string_view kBlanks = " \t\r\v\f";

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) {
    return {};
  }
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

Status Bad(std::string_view entry, const std::string& why) {
  return Status::Invalid("'" + Printable(entry, kQuotedMax) + "': " + why);
}

bool IsAlphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool IsNameCharacter(char c) {
  return IsAlphanumeric(c) || c == '-' || c == '_' || c == '.';
}

// A name that starts with '-' would be an option to ssh.
bool IsHostName(std::string_view name) {
  return !name.empty() && name.size() <= kHostNameMax && name.front() != '-' &&
         std::all_of(name.begin(), name.end(), IsNameCharacter);
}

// Link-local addresses carry their interface: fe80::1%eth0.
bool IsIpv6(std::string_view text) {
  const size_t percent = text.find('%');
  if (percent != std::string_view::npos && !IsHostName(text.substr(percent + 1))) {
    return false;
  }
  const std::string address(text.substr(0, percent));
  in6_addr parsed{};
  // inet_pton would stop at a zero byte and take what is behind it for a part of the name.
  return address.size() < INET6_ADDRSTRLEN && address.find('\0') == std::string::npos &&
         ::inet_pton(AF_INET6, address.c_str(), &parsed) == 1;
}

Result<uint32_t> ParseSlots(std::string_view entry, std::string_view digits) {
  uint32_t slots = 0;
  const char* end = digits.data() + digits.size();
  const auto [stopped, error] = std::from_chars(digits.data(), end, slots);
  if (digits.empty() || error != std::errc() || stopped != end || slots > kSlotsMax) {
    return Bad(entry,
               "the slot count must be a whole number from 0 to " + std::to_string(kSlotsMax));
  }
  return slots;
}

Result<ListedHost> WithDefault(std::string_view entry,
                               std::string_view name,
                               DefaultSlots default_slots) {
  if (!default_slots) {
    return Bad(entry,
               "no slot count; write '" + Printable(entry, kQuotedMax) +
                   ":SLOTS', or give --slots-per-host");
  }
  return ListedHost{HostId{std::string(name)}, *default_slots};
}

Result<ListedHost> ParseBracketed(std::string_view entry, DefaultSlots default_slots) {
  const size_t close = entry.find(']');
  if (close == std::string_view::npos || !IsIpv6(entry.substr(1, close - 1))) {
    return Bad(entry, "not an IPv6 address in brackets, such as [::1]:2");
  }
  const std::string_view name = entry.substr(1, close - 1);
  const std::string_view rest = Trim(entry.substr(close + 1));
  if (rest.empty()) {
    return WithDefault(entry, name, default_slots);
  }
  if (rest.front() != ':') {
    return Bad(entry, "after the bracket only ':SLOTS' may follow");
  }
  const Result<uint32_t> slots = ParseSlots(entry, Trim(rest.substr(1)));
  if (!slots.ok()) {
    return slots.status();
  }
  return ListedHost{HostId{std::string(name)}, slots.value()};
}

Status BadName(std::string_view entry, std::string_view name) {
  if (name.empty()) {
    return Bad(entry, "no host name before the ':'");
  }
  if (name.find_first_of(kBlanks) != std::string_view::npos) {
    return Bad(entry, "a blank stands inside; one host per entry");
  }
  if (name.size() > kHostNameMax) {
    return Bad(entry,
               "the host name is longer than " + std::to_string(kHostNameMax) + " characters");
  }
  return Bad(entry, "not a host name (letters, digits, '-', '_' and '.', not starting with '-')");
}

// Collects entries in source order and merges those of one host.
class ListBuilder {
 public:
  void Add(ListedHost host) {
    const auto [it, is_new] = index_.emplace(host.host, list_.hosts.size());
    if (is_new) {
      list_.hosts.push_back(std::move(host));
      return;
    }
    ListedHost& known = list_.hosts[it->second];
    known.slots = std::max(known.slots, host.slots);
    repeated_.insert(it->second);
  }

  // Warnings come last, so that they name the final count: the same text in whatever order the
  // entries stood.
  HostList Finish() {
    for (const size_t index : repeated_) {
      const ListedHost& host = list_.hosts[index];
      list_.warnings.push_back("host '" + host.host.value +
                               "' is listed more than once; its larger slot count, " +
                               std::to_string(host.slots) + ", is used");
    }
    return std::move(list_);
  }

 private:
  HostList list_;
  std::map<HostId, size_t> index_;
  std::set<size_t> repeated_;
};

using EntryParser = std::function<Result<ListedHost>(std::string_view)>;

// `where(n)` is put before what is wrong with line n.
Result<HostList> ParseLines(std::string_view text,
                            const std::function<std::string(size_t)>& where,
                            const EntryParser& parse) {
  if (text.size() > kHostListBytesMax) {
    return Status::Invalid("the list of hosts is longer than " +
                           std::to_string(kHostListBytesMax >> 10) + " KiB");
  }
  ListBuilder builder;
  size_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    const std::string_view entry = Trim(line.substr(0, line.find('#')));
    if (entry.empty()) {
      continue;
    }
    Result<ListedHost> host =
        entry.size() > kHostLineBytesMax
            ? Bad(entry, "longer than " + std::to_string(kHostLineBytesMax) + " characters")
            : parse(entry);
    if (!host.ok()) {
      return Status::Invalid(where(number) + host.status().message());
    }
    builder.Add(std::move(host).value());
  }
  return builder.Finish();
}

Result<ListedHost> ParseHostfileEntry(std::string_view entry, DefaultSlots default_slots) {
  const size_t blank = entry.find_first_of(kBlanks);
  if (blank == std::string_view::npos) {
    return ParseHost(entry, default_slots);
  }
  const std::string_view word = Trim(entry.substr(blank));
  constexpr std::string_view kSlots = "slots=";
  if (word.substr(0, kSlots.size()) != kSlots) {
    return Bad(entry,
               "'" + Printable(word, kQuotedMax) +
                   "' is not understood; write 'HOST slots=N' or 'HOST:N'");
  }
  const std::string_view name = entry.substr(0, blank);
  Result<ListedHost> host = ParseHost(name, 0);
  const Result<uint32_t> slots = ParseSlots(entry, word.substr(kSlots.size()));
  if (!host.ok() || !slots.ok()) {
    return host.ok() ? slots.status() : host.status();
  }
  const bool count_in_name =
      name.front() == '[' ? name.back() != ']' : name.find(':') != std::string_view::npos;
  if (count_in_name) {
    return Bad(entry, "two slot counts");
  }
  host.value().slots = slots.value();
  return host;
}

}  // namespace

bool IsHost(std::string_view name) {
  return IsHostName(name) || IsIpv6(name);
}

Result<ListedHost> ParseHost(std::string_view entry, DefaultSlots default_slots) {
  entry = Trim(entry);
  if (!entry.empty() && entry.front() == '[') {
    return ParseBracketed(entry, default_slots);
  }
  const size_t colon = entry.find(':');
  if (colon != std::string_view::npos && entry.find(':', colon + 1) != std::string_view::npos) {
    return Bad(entry, "more than one ':'; put an IPv6 address in brackets, as in [::1]:2");
  }
  const std::string_view name = Trim(entry.substr(0, colon));
  if (!IsHostName(name)) {
    return BadName(entry, name);
  }
  if (colon == std::string_view::npos) {
    return WithDefault(entry, name, default_slots);
  }
  const Result<uint32_t> slots = ParseSlots(entry, Trim(entry.substr(colon + 1)));
  if (!slots.ok()) {
    return slots.status();
  }
  return ListedHost{HostId{std::string(name)}, slots.value()};
}

Result<HostList> ParseHostLines(std::string_view text, DefaultSlots default_slots) {
  return ParseLines(
      text,
      [](size_t line) { return "line " + std::to_string(line) + ": "; },
      [&](std::string_view entry) { return ParseHost(entry, default_slots); });
}

Result<HostList> ParseHostArgument(std::string_view text, DefaultSlots default_slots) {
  if (text.size() > kHostListBytesMax) {
    return Status::Invalid("the list of hosts is too long");
  }
  ListBuilder builder;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view entry = Trim(text.substr(begin, end - begin));
    begin = end + 1;
    if (entry.empty()) {
      return Bad(text, "an entry is empty; write HOST:SLOTS,HOST:SLOTS");
    }
    Result<ListedHost> host = ParseHost(entry, default_slots);
    if (!host.ok()) {
      return host.status();
    }
    builder.Add(std::move(host).value());
  }
  return builder.Finish();
}

Result<HostList> ParseHostfile(std::string_view text,
                               const std::string& path,
                               DefaultSlots default_slots) {
  return ParseLines(
      text,
      [&](size_t line) { return path + ":" + std::to_string(line) + ": "; },
      [&](std::string_view entry) { return ParseHostfileEntry(entry, default_slots); });
}

std::string Printable(std::string_view text, size_t length_max) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string shown;
  for (const char c : text) {
    if (shown.size() >= length_max) {
      return shown + "...";
    }
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      shown += c;
    } else {
      shown += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return shown;
}

}  // namespace muster::discovery
