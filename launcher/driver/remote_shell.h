#pragma once

// The command line that starts an agent on another host: ssh, or what --rsh-agent names. Nothing
// secret and no variable is ever on it: those travel on standard input (AgentBootstrap).
//
// Pure but for a look at the file system; no state; any thread.

#include <string>
#include <vector>

#include "common/clock.h"
#include "common/ids.h"
#include "common/status.h"
#include "launcher/cli/remote_shell_options.h"

namespace muster::launcher {

/// The words to execute. ssh may not ask for anything; it tries to connect for `timeout`.
/// `own_program` is what runs on the other host unless the options say otherwise. kInvalid: the
/// host's name could be taken for an option or for more than one word.
Result<std::vector<std::string>> RemoteShellCommand(
    const RemoteShellOptions& options,
    const HostId& host,
    Duration timeout,
    const std::string& own_program,
    const std::string& kubernetes_shell = kKubernetesShell);

/// The path of this executable, as it was when it was started.
Result<std::string> OwnProgram();

}  // namespace muster::launcher
