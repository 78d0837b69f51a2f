#include "launcher/cli/agent_command.h"

#include <optional>

#include "common/address.h"
#include "discovery/host_list.h"
#include "launcher/cli/argv_rewrite.h"
#include "launcher/cli/flag_values.h"
#include "launcher/cli/network_flags.h"
#include "launcher/cli/typed_values.h"

namespace muster::launcher {
namespace {

constexpr double kJoinTimeoutMax = 1e8;
constexpr int kUsageError = 2;

PrintAndExit UsageError(const std::string& message) {
  return {"Usage: muster agent --join ADDRESS:PORT [flags]; see muster agent --help\nmuster: " +
              message + "\n",
          kUsageError};
}

std::vector<std::string> ReadDrivers(TypedValues& typed) {
  constexpr std::string_view kName = "--join";
  std::vector<std::string> drivers;
  const std::optional<std::string> text = typed.Text(kName);
  if (!text) {
    typed.Refuse(kName, "required: where the driver listens, as in --join 10.0.0.2:41000");
    return drivers;
  }
  for (const std::string& part : SplitList(*text)) {
    const Result<HostAndPort> address = SplitAddress(part);
    if (!address.ok() || address.value().port == 0) {
      drivers.clear();
      break;
    }
    drivers.push_back(JoinAddress(address.value().host, address.value().port));
  }
  if (drivers.empty()) {
    typed.Refuse(kName,
                 "must be addresses with a port, not names, separated by commas, as in "
                 "10.0.0.2:41000,[fd00::2]:41000");
  }
  return drivers;
}

std::string ReadHost(TypedValues& typed) {
  const std::optional<std::string> text = typed.Text("--host");
  if (!text) {
    return "";
  }
  const Result<discovery::ListedHost> parsed = discovery::ParseHost(*text, 1);
  std::string name = parsed.ok() ? parsed.value().host.value : "";
  if (name.empty() || (*text != name && *text != "[" + name + "]")) {
    typed.Refuse("--host", "must be the name of a host, without a count");
  }
  return name;
}

Result<JoinOptions> ReadJoin(const FlagValues& values) {
  TypedValues typed(values);
  JoinOptions join;
  join.drivers = ReadDrivers(typed);
  join.slots = typed.Count("--slots", 1, discovery::kSlotsMax).value_or(join.slots);
  join.host = ReadHost(typed);
  join.timeout = typed.Seconds("--join-timeout", 0, kJoinTimeoutMax).value_or(join.timeout);
  join.interfaces = ReadInterfaces(typed);
  join.log_level = ReadLogLevel(typed);
  join.secret_file = typed.Text("--secret-file").value_or("");
  if (join.secret_file.empty()) {
    typed.Refuse("--secret-file", "required, or MUSTER_SECRET_FILE: holds the job's secret");
  }
  return typed.status().ok() ? Result(std::move(join)) : typed.status();
}

}  // namespace

Parsed ParseAgent(const std::vector<std::string>& words,
                  const std::vector<std::string>& environment) {
  if (words.empty()) {
    return AgentCommand{};
  }
  const Result<RewrittenArgv> argv = RewriteArgv(words, AgentFlags());
  if (!argv.ok()) {
    return UsageError(argv.status().message());
  }
  if (!argv.value().command.empty()) {
    return UsageError("muster agent takes flags only, not '" +
                      discovery::Printable(argv.value().command.front(), 64) + "'");
  }
  const Result<FlagValues> values =
      FlagValues::Parse(argv.value().flags, environment, AgentFlags());
  if (!values.ok()) {
    return UsageError(values.status().message());
  }
  if (values.value().HasFlag("--help")) {
    return PrintAndExit{HelpText(AgentFlags()), 0};
  }
  Result<JoinOptions> join = ReadJoin(values.value());
  if (!join.ok()) {
    return UsageError(join.status().message());
  }
  return AgentCommand{std::move(join).value()};
}

}  // namespace muster::launcher
