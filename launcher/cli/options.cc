#include "launcher/cli/options.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "common/version.h"
#include "discovery/host_list.h"
#include "launcher/cli/agent_command.h"
#include "launcher/cli/argv_rewrite.h"
#include "launcher/cli/chaos_command.h"
#include "launcher/cli/collective_flags.h"
#include "launcher/cli/flag_values.h"
#include "launcher/cli/network_flags.h"
#include "launcher/cli/typed_values.h"
#include "launcher/cli/why_command.h"
#include "launcher/cli/worker_variables.h"

namespace muster::launcher {
namespace {

constexpr uint32_t kWorkersMax = 1 << 20;
constexpr uint32_t kLimitMax = 1'000'000'000;
constexpr double kSecondsMax = 1e8;  // Three years.
constexpr double kIntervalMin = 0.01;
constexpr double kDriverGraceMin = 1;
constexpr double kCooldownMin = 0.1;
constexpr double kCooldownMax = 3600;
constexpr size_t kCommandShownMax = 200;
constexpr int kUsageError = 2;

std::string Join(const std::vector<std::string>& words, const char* separator) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : separator) + word;
  }
  return text;
}

// ---------------------------------------------------------------- one part of the options each

template <class T>
void Set(T& target, const std::optional<T>& value) {
  if (value) {
    target = *value;
  }
}

void ReadSizes(TypedValues& typed, RunOptions& options) {
  MembershipOptions& membership = options.membership;
  const auto np = typed.Count("-np", 1, kWorkersMax);
  if (!np && typed.status().ok()) {
    typed.Refuse("-np", "required: the number of workers to run");
    return;
  }
  membership.np_start = np.value_or(1);
  membership.np_min = typed.Count("--min-np", 1, kWorkersMax).value_or(membership.np_start);
  membership.np_max = typed.Count("--max-np", 1, kWorkersMax);
  Set(membership.spares, typed.Count("--spares", 0, kWorkersMax));
  if (!membership.elastic) {
    membership.np_max = membership.np_start;
    membership.spares = 0;
    return;
  }
  const std::string np_text = std::to_string(membership.np_start);
  if (membership.np_min > membership.np_start) {
    typed.Refuse("--min-np",
                 "more than -np " + np_text + "; --min-np <= -np <= --max-np must hold");
  } else if (membership.np_max && *membership.np_max < membership.np_start) {
    typed.Refuse("--max-np",
                 "less than -np " + np_text + "; --min-np <= -np <= --max-np must hold");
  }
}

void ReadCooldown(const FlagValues& values, TypedValues& typed, RunOptions& options) {
  constexpr std::string_view kName = "--blacklist-cooldown-range";
  const GivenValue* given = values.Find(kName);
  if (given == nullptr) {
    return;
  }
  const std::optional<double> low = ParseNumber(given->values.at(0));
  const std::optional<double> high = ParseNumber(given->values.at(1));
  if (!low || !high || *low < kCooldownMin || *low > *high || *high > kCooldownMax) {
    typed.Refuse(kName, "must be two numbers of seconds LO HI with 0.1 <= LO <= HI <= 3600");
    return;
  }
  options.membership.cooldown =
      CooldownRange{std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*low)),
                    std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*high))};
}

void ReadLimits(const FlagValues& values, TypedValues& typed, RunOptions& options) {
  MembershipOptions& membership = options.membership;
  Set(membership.start_timeout, typed.Seconds("--start-timeout", 0, kSecondsMax));
  Set(membership.elastic_timeout, typed.Seconds("--elastic-timeout", 0, kSecondsMax));
  Set(membership.grace, typed.Seconds("--grace", 0, kSecondsMax));
  Set(membership.driver_grace, typed.Seconds("--driver-grace", kDriverGraceMin, kSecondsMax));
  membership.reset_limit = typed.Count("--reset-limit", 0, kLimitMax);
  membership.failure_limit = typed.Count("--failure-limit", 0, kLimitMax);
  ReadCooldown(values, typed, options);
  const std::string blame = typed.Text("--blame").value_or("slot");
  membership.blame_host = blame == "host";
  if (blame != "slot" && blame != "host") {
    typed.Refuse("--blame", "must be slot or host");
  }
}

void ReadStall(const FlagValues& values, TypedValues& typed, RunOptions& options) {
  const auto warning = typed.Seconds("--stall-check-warning-time-seconds", 0, kSecondsMax);
  const auto shutdown = typed.Seconds("--stall-check-shutdown-time-seconds", 0, kSecondsMax);
  Set(options.stall_warning, warning);
  Set(options.stall_shutdown, shutdown);
  const bool shutdown_first =
      options.stall_shutdown > Duration::zero() && options.stall_shutdown < options.stall_warning;
  if (shutdown_first && warning) {
    typed.Refuse("--stall-check-shutdown-time-seconds",
                 "less than --stall-check-warning-time-seconds; warn first, then shut down");
  } else if (shutdown_first) {
    options.stall_warning = options.stall_shutdown;
  }
  if (values.Has("--no-stall-check") && !values.HasFlag("--stall-check")) {
    options.stall_warning = Duration::zero();
    options.stall_shutdown = Duration::zero();
  }
}

void ReadOutput(const FlagValues& values, TypedValues& typed, RunOptions& options) {
  options.output_filename = typed.Text("--output-filename").value_or("");
  options.prefix_timestamp = values.Has("--prefix-output-with-timestamp");
  options.verbose = values.Has("--verbose");
  options.log_level = ReadLogLevel(typed);
  if (options.verbose && !values.HasFlag("--log-level")) {
    options.log_level = "INFO";
  }
}

// ---------------------------------------------------------------- hosts

constexpr std::array<std::string_view, 4> kHostFlags{
    "-H", "--hostfile", "--host-discovery-script", "--accept-agents"};

// A flag overrides the variables of the others as well as its own.
Status CheckOneHostFlag(FlagValues& values) {
  const bool by_flag = std::any_of(kHostFlags.begin(),
                                   kHostFlags.end(),
                                   [&](std::string_view name) { return values.HasFlag(name); });
  std::vector<std::string> given;
  for (const std::string_view name : kHostFlags) {
    if (by_flag) {
      values.DropFromEnvironment(name);
    }
    if (values.Has(name)) {
      given.emplace_back(name);
    }
  }
  if (given.size() > 1) {
    return Status::Invalid(Join(given, " and ") + " exclude each other: give one of them");
  }
  return Status::Ok();
}

void ReadHosts(TypedValues& typed, RunOptions& options) {
  options.slots_per_host = typed.Count("--slots-per-host", 1, discovery::kSlotsMax);
  Set(options.discovery_interval, typed.Seconds("--discovery-interval", kIntervalMin, kSecondsMax));
  Set(options.discovery_timeout, typed.Seconds("--discovery-timeout", kIntervalMin, kSecondsMax));
  options.script = typed.Text("--host-discovery-script").value_or("");
  options.hostfile = typed.Text("--hostfile").value_or("");
  const std::optional<std::string> hosts = typed.Text("-H");
  if (!typed.status().ok()) {
    return;
  }
  if (hosts) {
    Result<discovery::HostList> list = discovery::ParseHostArgument(*hosts, options.slots_per_host);
    if (!list.ok()) {
      typed.Refuse("-H", "in " + list.status().message());
      return;
    }
    options.hosts = std::move(list.value().hosts);
    options.warnings = std::move(list.value().warnings);
  } else if (options.script.empty() && options.hostfile.empty() && !options.accept_agents_port) {
    options.hosts = {{HostId{"localhost"}, options.membership.np_start}};
  }
}

// With agents that the driver starts itself, a random secret is the better one.
void ReadAccept(TypedValues& typed, RunOptions& options) {
  const auto port = typed.Count("--accept-agents", 0, kPortMax);
  if (!port) {
    return;
  }
  options.accept_agents_port = static_cast<uint16_t>(*port);
  options.secret_file = typed.Text("--secret-file").value_or("");
  if (options.secret_file.empty()) {
    typed.Refuse("--accept-agents",
                 "needs --secret-file or MUSTER_SECRET_FILE: the secret that the agents know too");
  }
}

uint64_t SlotCount(const std::vector<discovery::ListedHost>& hosts) {
  uint64_t count = 0;
  for (const discovery::ListedHost& host : hosts) {
    count += host.slots;
  }
  return count;
}

// -H never changes, so waiting for more would be in vain.
Status CheckFixedSlots(const RunOptions& options) {
  if (options.hosts.empty() || SlotCount(options.hosts) >= options.membership.np_start) {
    return Status::Ok();
  }
  return Status::Invalid(
      DescribeSlotShortage(options.hosts, options.membership.np_start, options.command));
}

// ---------------------------------------------------------------- warnings and settings

void WarnOfFlags(const FlagValues& values, RunOptions& options) {
  for (const Flag& flag : AllFlags()) {
    if (flag.use == FlagUse::kInert && values.HasFlag(LongName(flag))) {
      options.warnings.push_back(std::string(ShownName(flag)) +
                                 " has no effect: " + std::string(flag.help));
    }
  }
  if (std::string warning = WarnOfCpuOperations(values); !warning.empty()) {
    options.warnings.push_back(std::move(warning));
  }
  if (values.HasFlag("--secret-file") && !options.accept_agents_port) {
    options.warnings.emplace_back("--secret-file has no effect without --accept-agents");
  }
  for (const char* name : {"--ssh-port", "--ssh-identity-file", "--strict-host-key-checking"}) {
    if (values.HasFlag(name) && !options.remote_shell.rsh_agent.empty()) {
      options.warnings.push_back(std::string(name) + " has no effect: agents are started by " +
                                 options.remote_shell.rsh_agent + ", not ssh");
    }
  }
  if (options.membership.elastic) {
    return;
  }
  for (const char* name : {"--max-np",
                           "--spares",
                           "--reset-limit",
                           "--failure-limit",
                           "--blacklist-cooldown-range",
                           "--blame"}) {
    if (values.HasFlag(name)) {
      options.warnings.push_back(std::string(name) +
                                 " has no effect: the job is not elastic, which takes --min-np or "
                                 "--host-discovery-script");
    }
  }
}

// What Horovod's users have in their environment, and would wonder about. A flag says it already.
void WarnOfVariables(const FlagValues& values,
                     const std::vector<std::string>& environment,
                     RunOptions& options) {
  for (const Flag& flag : AllFlags()) {
    const bool is_switch_off = flag.worker_value == "0";
    if (flag.use != FlagUse::kInert || flag.worker_variable.empty() || is_switch_off ||
        values.HasFlag(LongName(flag))) {
      continue;
    }
    const std::string prefix = std::string(flag.worker_variable) + "=";
    for (const std::string& entry : environment) {
      const bool is_on =
          flag.worker_value.empty() || entry == prefix + std::string(flag.worker_value);
      if (entry.starts_with(prefix) && is_on) {
        options.warnings.push_back(std::string(flag.worker_variable) +
                                   " has no effect: " + std::string(flag.help));
      }
    }
  }
}

std::string BuiltinText(const Flag& flag, const RunOptions& options) {
  std::string np = std::to_string(options.membership.np_start);
  if (LongName(flag) == "--min-np") {
    return np;
  }
  if (LongName(flag) == "--hosts") {
    return options.hosts.empty() ? "" : "localhost:" + np;
  }
  return std::string(flag.builtin);
}

void ListSettings(const FlagValues& values, RunOptions& options) {
  for (const Flag& flag : AllFlags()) {
    const GivenValue* given = values.Find(LongName(flag));
    if (flag.use != FlagUse::kServed) {
      continue;
    }
    Setting setting{std::string(ShownName(flag)), "", ""};
    if (given == nullptr) {
      setting.value = BuiltinText(flag, options);
      setting.origin = "built-in";
    } else {
      setting.value = given->values.empty() ? "on" : Join(given->values, " ");
      setting.value += UnitOf(LongName(flag), *given);
      setting.origin = given->environment.empty() ? "flag" : "environment " + given->environment;
    }
    if (!setting.value.empty()) {
      options.settings.push_back(std::move(setting));
    }
  }
}

// ---------------------------------------------------------------- the whole

Status RefuseFlags(const FlagValues& values) {
  for (const Flag& flag : AllFlags()) {
    if (flag.use == FlagUse::kRefused && values.HasFlag(LongName(flag))) {
      return Status::Invalid(std::string(ShownName(flag)) + ": " + std::string(flag.help));
    }
  }
  return Status::Ok();
}

Result<RunOptions> MakeOptions(FlagValues values,
                               std::vector<std::string> command,
                               const std::vector<std::string>& environment) {
  for (const Status& status : {RefuseFlags(values), CheckOneHostFlag(values)}) {
    if (!status.ok()) {
      return status;
    }
  }
  RunOptions options;
  options.command = std::move(command);
  options.membership.elastic = values.Has("--host-discovery-script") ||
                               values.Has("--accept-agents") || values.Has("--min-np");
  TypedValues typed(values);
  ReadSizes(typed, options);
  ReadAccept(typed, options);
  ReadHosts(typed, options);
  options.network = ReadNetwork(typed);
  options.remote_shell = ReadRemoteShell(values, typed);
  options.forward_environment = ReadForwarded(typed);
  ReadLimits(values, typed, options);
  ReadStall(values, typed, options);
  ReadOutput(values, typed, options);
  options.incident_directory = ReadIncidentDirectory(typed, environment);
  options.worker_environment = WorkerVariables(values, options.network.interfaces, typed);
  if (!typed.status().ok()) {
    return typed.status();
  }
  if (options.command.empty()) {
    return Status::Invalid(
        "no command to run; it follows the flags, as in: muster run -np 2 ./train");
  }
  if (const Status slots = CheckFixedSlots(options); !slots.ok()) {
    return slots;
  }
  WarnOfFlags(values, options);
  WarnOfVariables(values, environment, options);
  ListSettings(values, options);
  return options;
}

PrintAndExit UsageError(const std::string& message) {
  return {"Usage: muster run [flags] command [arguments]; see muster run --help\nmuster: " +
              message + "\n",
          kUsageError};
}

std::string VersionText() {
  return std::string("muster ") + kVersion + "\n";
}

// Scripts look for these headings and boxes in the output of horovodrun.
std::string BuildText() {
  return std::string("Muster ") + kVersion + ", protocol " + std::to_string(kProtocolVersion) +
         "\n\n"
         "Available Frameworks:\n"
         "    [X] C++\n"
         "    [ ] PyTorch\n"
         "    [ ] TensorFlow\n"
         "    [ ] MXNet\n\n"
         "Available Controllers:\n"
         "    [ ] MPI\n"
         "    [X] Gloo\n\n"
         "Available Tensor Operations:\n"
         "    [ ] NCCL\n"
         "    [ ] MPI\n"
         "    [X] Gloo\n";
}

Parsed ParseRun(const std::vector<std::string>& words,
                const std::vector<std::string>& environment) {
  Result<RewrittenArgv> argv = RewriteArgv(words);
  if (!argv.ok()) {
    return UsageError(argv.status().message());
  }
  Result<FlagValues> values = FlagValues::Parse(argv.value().flags, environment);
  if (!values.ok()) {
    return UsageError(values.status().message());
  }
  if (values.value().HasFlag("--help")) {
    return PrintAndExit{HelpText(), 0};
  }
  if (values.value().HasFlag("--version")) {
    return PrintAndExit{VersionText(), 0};
  }
  if (values.value().HasFlag("--check-build")) {
    return PrintAndExit{BuildText(), 0};
  }
  Result<RunOptions> options =
      MakeOptions(std::move(values).value(), std::move(argv.value().command), environment);
  if (!options.ok()) {
    return UsageError(options.status().message());
  }
  return std::move(options).value();
}

std::string_view Basename(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

Parsed ParseCommandLine(const std::vector<std::string>& argv,
                        const std::vector<std::string>& environment) {
  const std::string program(argv.empty() ? "" : Basename(argv[0]));
  const std::vector<std::string> words(argv.begin() + (argv.empty() ? 0 : 1), argv.end());
  const std::string command = words.empty() ? "" : words[0];
  // The driver starts agents by its own name, and a copy may be called like the link.
  if (program == "horovodrun" && command != "agent") {
    return ParseRun(words, environment);
  }
  if (command == "run") {
    return ParseRun({words.begin() + 1, words.end()}, environment);
  }
  if (command == "agent") {
    return ParseAgent({words.begin() + 1, words.end()}, environment);
  }
  if (command == "why") {
    return ParseWhy({words.begin() + 1, words.end()}, environment);
  }
  if (command == "chaos") {
    return ParseChaos({words.begin() + 1, words.end()}, environment);
  }
  if (command.empty()) {
    return UsageError("say what to do: muster run, muster agent, muster why, or muster chaos");
  }
  const Flag* flag = FindFlag(command);
  const std::string_view name = flag == nullptr ? "" : LongName(*flag);
  if (name == "--help" || name == "--version" || name == "--check-build") {
    return ParseRun(words, environment);
  }
  return UsageError("'" + discovery::Printable(command, kCommandShownMax) +
                    "' is not a command of muster; did you mean: muster run " +
                    discovery::Printable(Join(words, " "), kCommandShownMax));
}

std::string DescribeSlotShortage(const std::vector<discovery::ListedHost>& hosts,
                                 uint32_t needed,
                                 const std::vector<std::string>& command) {
  std::string listed;
  for (const discovery::ListedHost& host : hosts) {
    if (listed.size() > kCommandShownMax) {
      listed += ", ...";
      break;
    }
    listed += (listed.empty() ? "" : ", ") + host.host.value + ":" + std::to_string(host.slots);
  }
  std::string text = "not enough slots: found " + std::to_string(SlotCount(hosts)) + " (" +
                     (listed.empty() ? "no hosts" : listed) + "), needed " +
                     std::to_string(needed) + " (-np); the command was taken to be '" +
                     discovery::Printable(Join(command, " "), kCommandShownMax) + "'";
  if (!command.empty() && command[0].find('/') == std::string::npos &&
      command[0].find(':') != std::string::npos &&
      discovery::ParseHostArgument(command[0], std::nullopt).ok()) {
    text += "; '" + command[0] + "' looks like a host: separate hosts by commas, not blanks";
  }
  return text;
}

}  // namespace muster::launcher
