#pragma once

// The command line of `muster` as values: what was asked for, checked, with every default filled
// in. Precedence: flag, then environment, then built-in. Nothing here runs a job, reads a clock or
// touches a file (-H is parsed, a hostfile is not). Thread-safe: no state.

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "common/clock.h"
#include "discovery/host_source.h"
#include "launcher/cli/chaos_options.h"
#include "launcher/cli/join_options.h"
#include "launcher/cli/network_options.h"
#include "launcher/cli/remote_shell_options.h"
#include "launcher/core/membership_types.h"

namespace muster::launcher {

/// Where a value came from, for --verbose: `--elastic-timeout = 600 (built-in)`.
struct Setting {
  std::string flag;
  std::string value;
  std::string origin;  // "flag", "environment NAME" or "built-in".
};

/// One job. Exactly one of `script`, `hosts`, `hostfile` and `accept_agents_port` is set: with none
/// on the command line `hosts` is localhost with -np slots.
struct RunOptions {
  std::vector<std::string> command;  // Never empty.
  /// -np, --min-np, --max-np, --spares, the timeouts, graces, limits, cooldown and blame. In a
  /// static job np_min == np_start and np_max == np_start.
  MembershipOptions membership;

  std::string script;                        // --host-discovery-script: for /bin/sh -c.
  std::vector<discovery::ListedHost> hosts;  // -H; no zero-length list if set.
  std::string hostfile;                      // --hostfile.
  std::optional<uint32_t> slots_per_host;    // --slots-per-host.
  /// --accept-agents: agents dial in at this port, and are the discovery; 0: any free port.
  std::optional<uint16_t> accept_agents_port;
  Duration discovery_interval = std::chrono::seconds(1);
  Duration discovery_timeout = std::chrono::seconds(30);

  NetworkOptions network;
  RemoteShellOptions remote_shell;
  /// --forward-environment: variables that other machines get although they belong to a machine.
  std::vector<std::string> forward_environment;
  /// --secret-file: holds the job's secret. Empty: a random one; never empty with
  /// accept_agents_port.
  std::string secret_file;

  Duration stall_warning = std::chrono::seconds(60);  // 0: no stall check at all.
  Duration stall_shutdown = Duration::zero();         // 0: never.

  std::string output_filename;  // --output-filename: a folder; empty: console only.
  /// --incident-dir: where the records of jobs lie, for `muster why`; empty: nowhere.
  std::string incident_directory;
  bool prefix_timestamp = false;  // --prefix-output-with-timestamp.
  bool verbose = false;
  std::string log_level;  // As InitLog takes it; never empty. INFO under --verbose.

  /// Added to the workers' environment, over what they inherit: HOROVOD_* of the flags given.
  std::map<std::string, std::string> worker_environment;
  /// One sentence each; log them once at the start (inert flags, flags without effect).
  std::vector<std::string> warnings;
  /// All effective settings in the order of --help; shown under --verbose.
  std::vector<Setting> settings;
};

/// `muster agent`. Without `join` the rest comes on standard input (proto AgentBootstrap).
struct AgentCommand {
  std::optional<JoinOptions> join;
};

/// `muster why`.
struct WhyCommand {
  std::string directory;  // As RunOptions::incident_directory.
  std::string job;        // An id, its beginning, or a path; empty: the newest job.
  bool json = false;
};

/// --help, --version, --check-build (code 0, standard output) and usage errors (code 2, standard
/// error; the last line starts with "muster: "). The text ends with a newline.
struct PrintAndExit {
  std::string text;
  int code = 0;
};

using Parsed = std::variant<RunOptions, AgentCommand, WhyCommand, ChaosOptions, PrintAndExit>;

/// argv as main got it: with the basename `horovodrun` in argv[0] it is `muster run`.
/// `environment` is a list of "NAME=value", as CurrentEnvironment() gives it.
Parsed ParseCommandLine(const std::vector<std::string>& argv,
                        const std::vector<std::string>& environment);

/// The sentence for too few slots: how many were found and on which hosts, how many are needed,
/// and what was taken as the command, since `-H a:1 b:2` makes b:2 a part of the command.
std::string DescribeSlotShortage(const std::vector<discovery::ListedHost>& hosts,
                                 uint32_t needed,
                                 const std::vector<std::string>& command);

}  // namespace muster::launcher
