#pragma once

// The flags about other hosts and the network, as values. Pure: whether an interface, a file or a
// program exists is found out where it is used.

#include <string>
#include <vector>

#include "launcher/cli/flag_values.h"
#include "launcher/cli/network_options.h"
#include "launcher/cli/remote_shell_options.h"
#include "launcher/cli/typed_values.h"

namespace muster::launcher {

inline constexpr uint32_t kPortMax = 65535;

/// Bad values are refused through `typed`.
NetworkOptions ReadNetwork(TypedValues& typed);
RemoteShellOptions ReadRemoteShell(const FlagValues& values, TypedValues& typed);
/// --network-interface: names, and host literals as CanonicalHost writes them.
std::vector<std::string> ReadInterfaces(TypedValues& typed);
/// --forward-environment.
std::vector<std::string> ReadForwarded(TypedValues& typed);

/// The parts between commas, without blanks around them and without empty ones.
std::vector<std::string> SplitList(const std::string& text);

}  // namespace muster::launcher
