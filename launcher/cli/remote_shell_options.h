#pragma once

// RemoteShellOptions: how agents are started on other hosts. A value; what is empty is left to the
// user's ssh configuration.

#include <cstdint>
#include <optional>
#include <string>

namespace muster::launcher {

struct RemoteShellOptions {
  std::optional<uint16_t> ssh_port;      // -p
  std::string ssh_identity_file;         // -i
  std::string strict_host_key_checking;  // "yes", "no", "accept-new".
  /// --rsh-agent, called as `CMD HOST COMMAND`: a program, perhaps with arguments, separated by
  /// blanks. Empty: /etc/mpi/kubexec.sh if that is executable, else ssh; whoever starts agents
  /// looks.
  std::string rsh_agent;
  std::string remote_muster;  // Absolute path of muster on other hosts; empty: as here.
};

inline constexpr const char* kKubernetesShell = "/etc/mpi/kubexec.sh";

}  // namespace muster::launcher
