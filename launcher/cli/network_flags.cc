#include "launcher/cli/network_flags.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <string_view>

#include "common/address.h"

namespace muster::launcher {
namespace {

constexpr size_t kInterfaceNameMax = 15;  // IFNAMSIZ without the zero.
constexpr const char* kOpenMpiVariable = "OMPI_MCA_plm_rsh_agent";
constexpr const char* kBlanks = " \t";

std::string Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) {
    return "";
  }
  return std::string(text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1));
}

bool IsInterfaceName(const std::string& text) {
  return !text.empty() && text.size() <= kInterfaceNameMax &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isgraph(c) != 0 && c != '/' && c != '%';
         });
}

/// Nothing: neither a name nor an address.
std::optional<std::string> ReadInterface(const std::string& text) {
  const bool brackets = text.size() > 2 && text.front() == '[' && text.back() == ']';
  const Result<std::string> literal =
      CanonicalHost(brackets ? text.substr(1, text.size() - 2) : text);
  if (literal.ok()) {
    return literal.value();
  }
  return IsInterfaceName(text) ? std::optional(text) : std::nullopt;
}

// Open MPI's value is a list, "ssh : rsh"; plain ssh is what Muster calls with options of its own.
std::string FirstOfOpenMpi(const std::string& list) {
  const std::string first = Trim(std::string_view(list).substr(0, list.find(':')));
  return first == "ssh" ? "" : first;
}

}  // namespace

std::vector<std::string> SplitList(const std::string& text) {
  std::vector<std::string> parts;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t comma = rest.find(',');
    if (std::string part = Trim(rest.substr(0, comma)); !part.empty()) {
      parts.push_back(std::move(part));
    }
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
  }
  return parts;
}

std::vector<std::string> ReadInterfaces(TypedValues& typed) {
  constexpr std::string_view kName = "--network-interface";
  const std::optional<std::string> text = typed.Text(kName);
  if (!text) {
    return {};
  }
  std::vector<std::string> interfaces;
  for (const std::string& part : SplitList(*text)) {
    if (std::optional<std::string> interface = ReadInterface(part)) {
      interfaces.push_back(std::move(*interface));
    } else {
      interfaces.clear();
      break;
    }
  }
  if (interfaces.empty()) {
    typed.Refuse(kName,
                 "must be names of interfaces or addresses, separated by commas, as in "
                 "eth0,10.0.0.2");
  }
  return interfaces;
}

NetworkOptions ReadNetwork(TypedValues& typed) {
  NetworkOptions network;
  network.interfaces = ReadInterfaces(typed);
  if (const auto text = typed.Text("--address-family")) {
    const Result<AddressFamily> family = ParseAddressFamily(*text);
    if (family.ok()) {
      network.family = family.value();
    } else {
      typed.Refuse("--address-family", family.status().message());
    }
  }
  if (const auto text = typed.Text("--port-range")) {
    const Result<PortRange> range = ParsePortRange(*text);
    if (range.ok()) {
      network.ports = range.value();
    } else {
      typed.Refuse("--port-range", range.status().message());
    }
  }
  return network;
}

RemoteShellOptions ReadRemoteShell(const FlagValues& values, TypedValues& typed) {
  RemoteShellOptions shell;
  if (const auto port = typed.Count("--ssh-port", 1, kPortMax)) {
    shell.ssh_port = static_cast<uint16_t>(*port);
  }
  shell.ssh_identity_file = typed.Text("--ssh-identity-file").value_or("");
  constexpr std::array<std::string_view, 4> kChecks{"", "yes", "no", "accept-new"};
  shell.strict_host_key_checking = typed.Text("--strict-host-key-checking").value_or("");
  if (std::find(kChecks.begin(), kChecks.end(), shell.strict_host_key_checking) == kChecks.end()) {
    typed.Refuse("--strict-host-key-checking", "must be yes, no or accept-new");
  }
  shell.rsh_agent = Trim(typed.Text("--rsh-agent").value_or(""));
  const GivenValue* given = values.Find("--rsh-agent");
  if (given != nullptr && given->environment == kOpenMpiVariable) {
    shell.rsh_agent = FirstOfOpenMpi(shell.rsh_agent);
  }
  shell.remote_muster = typed.Text("--remote-muster").value_or("");
  if (!shell.remote_muster.empty() && shell.remote_muster.front() != '/') {
    typed.Refuse("--remote-muster", "must be an absolute path");
  }
  return shell;
}

std::vector<std::string> ReadForwarded(TypedValues& typed) {
  constexpr std::string_view kName = "--forward-environment";
  const std::optional<std::string> text = typed.Text(kName);
  if (!text) {
    return {};
  }
  std::vector<std::string> names = SplitList(*text);
  const bool with_value = std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return name.find('=') != std::string::npos;
  });
  if (names.empty() || with_value) {
    typed.Refuse(kName, "must be names of variables, separated by commas, without values");
  }
  return names;
}

}  // namespace muster::launcher
